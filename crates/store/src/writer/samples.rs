//! Samples of what is measured again and again, and labels of processes.

use gpuwhy_model::{ProcessId, Sample};
use hashbrown::HashMap;
use rusqlite::{Connection, params};

use super::names::{Name, next_id};
use super::{Writer, signed};
use crate::StoreError;

/// What a sample takes, about.
const SAMPLE_BYTES: usize = 32;

/// The numbers of what is measured in this session.
pub(super) struct Series {
    /// With the time of the last sample.
    ids: HashMap<(String, String, Option<String>), (u32, u64)>,
    next: u32,
}

impl Series {
    pub fn load(connection: &Connection) -> rusqlite::Result<Self> {
        Ok(Self { ids: HashMap::new(), next: next_id(connection, "sample_series")? })
    }

    /// Deletes the names of what was not sampled since then, such as a process that ended long ago.
    pub fn expire(&mut self, connection: &Connection, oldest_ns: i64) -> rusqlite::Result<usize> {
        let gone = self.ids.extract_if(|_, (_, last_ns)| signed(*last_ns) < oldest_ns);
        let mut delete = connection.prepare_cached("DELETE FROM sample_series WHERE id = ?")?;
        gone.map(|(_, (id, _))| delete.execute([id])).sum()
    }
}

impl Writer {
    /// Stores values. Of two values of the same thing at the same time the last one stays.
    pub fn samples(&mut self, samples: &[Sample]) -> Result<(), StoreError> {
        let series = samples.iter().map(|sample| self.series(sample)).collect::<Result<Vec<u32>, _>>()?;
        let rows: Vec<(&Sample, u32)> = samples.iter().zip(series).collect();
        self.sums(&rows, |writer, &(sample, series)| write_sample(&writer.connection, series, sample))
    }

    /// Names what a process belongs to. A new value for a key replaces the old one.
    pub fn label(&mut self, process: ProcessId, key: &str, value: &str) -> Result<(), StoreError> {
        self.make_room_for_names()?;
        self.name(Name::Label { process, key: key.to_owned(), value: value.to_owned() })
    }

    fn series(&mut self, sample: &Sample) -> Result<u32, StoreError> {
        let key = (sample.name.clone(), sample.unit.clone(), sample.device.clone());
        if let Some((id, last_ns)) = self.series.ids.get_mut(&key) {
            *last_ns = sample.at_ns.max(*last_ns);
            return Ok(*id);
        }
        self.make_room_for_names()?;
        let id = self.series.next;
        let Sample { name, unit, device, .. } = sample.clone();
        self.name(Name::Series { id, name, unit, device })?;
        self.series.next += 1;
        self.series.ids.insert(key, (id, sample.at_ns));
        Ok(id)
    }
}

fn write_sample(connection: &Connection, series: u32, sample: &Sample) -> rusqlite::Result<usize> {
    // SQLite takes NaN for a value that is missing.
    if sample.value.is_nan() {
        return Ok(0);
    }
    let mut statement = connection
        .prepare_cached("INSERT INTO samples VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value")?;
    statement.execute(params![signed(sample.at_ns), series, sample.value])?;
    Ok(SAMPLE_BYTES)
}
