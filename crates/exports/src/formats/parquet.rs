//! The rows of one view as a Parquet file, with the columns and types that the trace says the view has.

use std::sync::Arc;

use gpuwhy_model::CellType;
use gpuwhy_store::{Cells, Value, view_columns};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use crate::{Export, ExportError, Format, Holds, Out};

pub const FORMAT: Format = Format {
    name: "parquet",
    read_by: "DuckDB, pandas, Spark: one view, of your choice",
    extension: "parquet",
    holds: Holds::OneView,
    write,
};

/// Rows that are in memory at a time.
const ROWS_OF_A_GROUP: usize = 1 << 16;

fn write(export: &Export<'_>, out: &mut Out<'_>) -> Result<(), ExportError> {
    let reading = export.asked.read(export.part)?;
    let mut columns: Vec<Column> = view_columns(export.view.name).iter().map(Column::new).collect();
    let fields = columns.iter().map(Column::field).collect::<Result<Vec<TypePtr>, ParquetError>>()?;
    let schema = Type::group_type_builder(export.view.name).with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let time = columns.iter().position(|column| column.name == export.view.time).unwrap_or_default();
    let mut rows = 0;
    export.view.each(&reading, |row| {
        (0..).zip(&mut columns).try_for_each(|(at, column)| column.take(row, at))?;
        rows += 1;
        if rows == ROWS_OF_A_GROUP {
            rows = 0;
            let done_ns = row.ns(time).saturating_sub(reading.span.from_ns);
            export.asked.progress(done_ns as f64 / reading.span.ns().max(1) as f64, export.view.name);
            write_group(&mut file, &mut columns)?;
        }
        Ok::<(), ExportError>(())
    })?;
    if rows > 0 {
        write_group(&mut file, &mut columns)?;
    }
    file.close()?;
    export.asked.progress(1.0, "done");
    Ok(())
}

/// What was read of a column, and is not written yet.
struct Column {
    name: &'static str,
    values: Values,
    /// Of each row: 1 with a value, 0 without.
    are_there: Vec<i16>,
}

enum Values {
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
    Texts(Vec<ByteArray>),
}

impl Column {
    fn new(of_view: &gpuwhy_model::Column) -> Self {
        let values = match of_view.kind {
            CellType::Integer => Values::Integers(Vec::new()),
            CellType::Real => Values::Numbers(Vec::new()),
            CellType::Text => Values::Texts(Vec::new()),
        };
        Self { name: of_view.name, values, are_there: Vec::new() }
    }

    fn field(&self) -> Result<TypePtr, ParquetError> {
        let (physical, logical) = match self.values {
            Values::Integers(_) => (Physical::INT64, None),
            Values::Numbers(_) => (Physical::DOUBLE, None),
            Values::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(self.name, physical).with_repetition(Repetition::OPTIONAL);
        Ok(Arc::new(field.with_logical_type(logical).build()?))
    }

    /// Any value has a text; nothing else is taken for what it is not.
    fn take(&mut self, row: &Cells<'_>, at: usize) -> Result<(), ExportError> {
        let value = row.value(at);
        self.are_there.push(i16::from(value != Value::Null));
        match (&mut self.values, value) {
            (_, Value::Null) => {}
            (Values::Integers(values), Value::Integer(value)) => values.push(value),
            (Values::Numbers(values), Value::Real(value)) => values.push(value),
            (Values::Numbers(values), Value::Integer(value)) => values.push(value as f64),
            (Values::Texts(values), Value::Text(value)) => values.push(value.into_bytes().into()),
            (Values::Texts(values), value) => values.push(value.to_json().to_string().into_bytes().into()),
            (_, value) => {
                let message = format!("{} holds {}, which is no number of its kind", self.name, value.to_json());
                return Err(ExportError::Failed { message });
            }
        }
        Ok(())
    }
}

fn write_group(file: &mut SerializedFileWriter<&mut Out<'_>>, columns: &mut [Column]) -> Result<(), ExportError> {
    let mut group = file.next_row_group()?;
    for Column { values, are_there, .. } in columns {
        let Some(mut writer) = group.next_column()? else { break };
        match values {
            Values::Integers(values) => write_values(writer.typed::<Int64Type>(), values, are_there)?,
            Values::Numbers(values) => write_values(writer.typed::<DoubleType>(), values, are_there)?,
            Values::Texts(values) => write_values(writer.typed::<ByteArrayType>(), values, are_there)?,
        }
        writer.close()?;
    }
    group.close()?;
    Ok(())
}

fn write_values<T: DataType>(
    writer: &mut ColumnWriterImpl<'_, T>,
    values: &mut Vec<T::T>,
    are_there: &mut Vec<i16>,
) -> Result<(), ParquetError> {
    writer.write_batch(values, Some(are_there), None)?;
    values.clear();
    are_there.clear();
    Ok(())
}

impl From<ParquetError> for ExportError {
    fn from(error: ParquetError) -> Self {
        Self::Failed { message: error.to_string() }
    }
}
