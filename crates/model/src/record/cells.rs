//! Values of fields as cells of a row, and back.

use std::borrow::Cow;

use crate::{CpuTaker, Histogram, StandsFor, ThreadId};

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(Cow<'a, str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellType {
    Integer,
    Real,
    Text,
}

impl CellType {
    /// The spelling in the file and its documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Integer => "INTEGER",
            Self::Real => "REAL",
            Self::Text => "TEXT",
        }
    }
}

/// Takes the cells of a row one after the other.
pub trait Put {
    type Error;

    fn put(&mut self, cell: Cell<'_>) -> Result<(), Self::Error>;
}

/// Gives the cells of a row one after the other.
pub trait Take {
    fn take(&mut self) -> Cell<'_>;
}

/// A value that is one cell.
pub trait Scalar: Sized {
    const TYPE: CellType;

    fn to_cell(&self) -> Cell<'_>;

    /// `None` for what cannot be such a value.
    fn from_cell(cell: Cell<'_>) -> Option<Self>;
}

/// How a field of type `T` becomes cells: [`Plain`], unless its declaration says otherwise.
pub trait Cells<T> {
    /// The type of each cell, and whether it may be empty.
    fn types() -> Vec<(CellType, bool)>;

    fn put<P: Put>(value: &T, to: &mut P) -> Result<(), P::Error>;

    fn take(from: &mut impl Take) -> Option<T>;
}

/// As a person would write the value. Numbers beyond what the file can hold are cut.
pub struct Plain;

/// A number that uses all 64 bits, kept bit by bit: a handle, an address.
pub struct Bits;

/// A number that is not negative. One that is, or is none, is 0, or nothing where the field may be empty.
pub struct NotNegative;

/// A number from 0 to 1.
pub struct Share;

impl<T: Scalar> Cells<T> for Plain {
    fn types() -> Vec<(CellType, bool)> {
        vec![(T::TYPE, false)]
    }

    fn put<P: Put>(value: &T, to: &mut P) -> Result<(), P::Error> {
        to.put(value.to_cell())
    }

    fn take(from: &mut impl Take) -> Option<T> {
        T::from_cell(from.take())
    }
}

impl<T: Scalar> Cells<Option<T>> for Plain {
    fn types() -> Vec<(CellType, bool)> {
        vec![(T::TYPE, true)]
    }

    fn put<P: Put>(value: &Option<T>, to: &mut P) -> Result<(), P::Error> {
        to.put(value.as_ref().map_or(Cell::Null, T::to_cell))
    }

    fn take(from: &mut impl Take) -> Option<Option<T>> {
        Some(T::from_cell(from.take()))
    }
}

impl<const N: usize> Cells<[u64; N]> for Plain {
    fn types() -> Vec<(CellType, bool)> {
        vec![(u64::TYPE, false); N]
    }

    fn put<P: Put>(values: &[u64; N], to: &mut P) -> Result<(), P::Error> {
        values.iter().try_for_each(|value| to.put(value.to_cell()))
    }

    fn take(from: &mut impl Take) -> Option<[u64; N]> {
        Some(std::array::from_fn(|_| u64::from_cell(from.take()).unwrap_or(0)))
    }
}

impl<const N: usize> Cells<[Option<CpuTaker>; N]> for Plain {
    fn types() -> Vec<(CellType, bool)> {
        vec![(CellType::Integer, true); 2 * N]
    }

    fn put<P: Put>(takers: &[Option<CpuTaker>; N], to: &mut P) -> Result<(), P::Error> {
        takers.iter().try_for_each(|taker| {
            <Self as Cells<_>>::put(&taker.map(|taker| taker.thread), to)?;
            <Self as Cells<_>>::put(&taker.map(|taker| taker.ns), to)
        })
    }

    fn take(from: &mut impl Take) -> Option<[Option<CpuTaker>; N]> {
        Some(std::array::from_fn(|_| {
            let (thread, ns) = (ThreadId::from_cell(from.take()), u64::from_cell(from.take()));
            thread.map(|thread| CpuTaker { thread, ns: ns.unwrap_or(0) })
        }))
    }
}

impl Cells<StandsFor> for Plain {
    fn types() -> Vec<(CellType, bool)> {
        <Self as Cells<[u64; 3]>>::types()
    }

    fn put<P: Put>(all: &StandsFor, to: &mut P) -> Result<(), P::Error> {
        <Self as Cells<_>>::put(&[all.count, all.blocked_ns, all.runqueue_ns], to)
    }

    fn take(from: &mut impl Take) -> Option<StandsFor> {
        let [count, blocked_ns, runqueue_ns] = <Self as Cells<[u64; 3]>>::take(from)?;
        Some(StandsFor { count, blocked_ns, runqueue_ns })
    }
}

impl Cells<u64> for Bits {
    fn types() -> Vec<(CellType, bool)> {
        vec![(CellType::Integer, false)]
    }

    fn put<P: Put>(value: &u64, to: &mut P) -> Result<(), P::Error> {
        to.put(Cell::Integer(value.cast_signed()))
    }

    fn take(from: &mut impl Take) -> Option<u64> {
        i64::from_cell(from.take()).map(i64::cast_unsigned)
    }
}

impl Cells<Option<u64>> for Bits {
    fn types() -> Vec<(CellType, bool)> {
        vec![(CellType::Integer, true)]
    }

    fn put<P: Put>(value: &Option<u64>, to: &mut P) -> Result<(), P::Error> {
        to.put(value.map_or(Cell::Null, |value| Cell::Integer(value.cast_signed())))
    }

    fn take(from: &mut impl Take) -> Option<Option<u64>> {
        Some(<Self as Cells<u64>>::take(from))
    }
}

/// Numbers with limits. What is no number is the lower one.
macro_rules! limited {
    ($($way:ident: $range:expr;)+) => {$(
        impl Cells<f64> for $way {
            fn types() -> Vec<(CellType, bool)> {
                vec![(CellType::Real, false)]
            }

            fn put<P: Put>(value: &f64, to: &mut P) -> Result<(), P::Error> {
                to.put(Cell::Real(value.max(*$range.start()).min(*$range.end())))
            }

            fn take(from: &mut impl Take) -> Option<f64> {
                f64::from_cell(from.take())
            }
        }
    )+};
}

limited! {
    NotNegative: (0.0..=f64::INFINITY);
    Share: (0.0..=1.0);
}

impl Cells<Option<f64>> for NotNegative {
    fn types() -> Vec<(CellType, bool)> {
        vec![(CellType::Real, true)]
    }

    fn put<P: Put>(value: &Option<f64>, to: &mut P) -> Result<(), P::Error> {
        let value = value.filter(|value| value.is_finite() && *value >= 0.0);
        to.put(value.map_or(Cell::Null, Cell::Real))
    }

    fn take(from: &mut impl Take) -> Option<Option<f64>> {
        Some(f64::from_cell(from.take()))
    }
}

macro_rules! scalars {
    ($($type:ty: $cell:ident(|$value:ident| $in:expr, |$stored:ident| $out:expr);)+) => {$(
        impl Scalar for $type {
            const TYPE: CellType = CellType::$cell;

            fn to_cell(&self) -> Cell<'_> {
                let $value = self;
                Cell::$cell($in)
            }

            fn from_cell(cell: Cell<'_>) -> Option<Self> {
                match cell {
                    Cell::$cell($stored) => $out,
                    _ => None,
                }
            }
        }
    )+};
}

scalars! {
    // Times, durations and counts are never negative; one that is counts as none.
    u64: Integer(|value| i64::try_from(*value).unwrap_or(i64::MAX), |stored| Some(u64::try_from(stored).unwrap_or(0)));
    u32: Integer(|value| i64::from(*value), |stored| u32::try_from(stored).ok());
    u16: Integer(|value| i64::from(*value), |stored| u16::try_from(stored).ok());
    i32: Integer(|value| i64::from(*value), |stored| i32::try_from(stored).ok());
    i64: Integer(|value| *value, |stored| Some(stored));
    bool: Integer(|value| i64::from(*value), |stored| Some(stored != 0));
    f64: Real(|value| *value, |stored| Some(stored));
    String: Text(|value| Cow::Borrowed(value.as_str()), |stored| Some(stored.into_owned()));
    Histogram: Text(|value| Cow::Owned(value.to_json()), |stored| Histogram::from_json(&stored).ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through<T, Way: Cells<T>>(value: &T) -> Option<T> {
        let mut row = Row::default();
        let Ok(()) = Way::put(value, &mut row);
        assert_eq!(row.0.len(), Way::types().len());
        Way::take(&mut row)
    }

    #[derive(Default)]
    struct Row(std::collections::VecDeque<Cell<'static>>);

    impl Put for Row {
        type Error = std::convert::Infallible;

        fn put(&mut self, cell: Cell<'_>) -> Result<(), Self::Error> {
            self.0.push_back(match cell {
                Cell::Null => Cell::Null,
                Cell::Integer(value) => Cell::Integer(value),
                Cell::Real(value) => Cell::Real(value),
                Cell::Text(text) => Cell::Text(Cow::Owned(text.into_owned())),
            });
            Ok(())
        }
    }

    impl Take for Row {
        fn take(&mut self) -> Cell<'_> {
            self.0.pop_front().unwrap_or(Cell::Null)
        }
    }

    #[test]
    fn values_come_back_as_they_were() {
        assert_eq!(through::<_, Plain>(&7_u64), Some(7));
        assert_eq!(through::<_, Plain>(&Some(true)), Some(Some(true)));
        assert_eq!(through::<Option<String>, Plain>(&None), Some(None));
        assert_eq!(through::<_, Bits>(&u64::MAX), Some(u64::MAX));
        assert_eq!(through::<_, Bits>(&Some(1_u64 << 63)), Some(Some(1 << 63)));
        let taken_by = [Some(CpuTaker { thread: ThreadId(3), ns: 9 }), None];
        assert_eq!(through::<_, Plain>(&taken_by), Some(taken_by));
        let all = StandsFor { count: 1, blocked_ns: 2, runqueue_ns: 3 };
        assert_eq!(through::<_, Plain>(&all), Some(all));
    }

    #[test]
    fn what_the_file_cannot_hold_is_cut_and_what_is_no_number_is_zero() {
        assert_eq!(through::<_, Plain>(&u64::MAX), Some(i64::MAX.cast_unsigned()));
        assert_eq!(through::<_, Share>(&1.5), Some(1.0));
        assert_eq!(through::<_, Share>(&f64::NAN), Some(0.0));
        assert_eq!(through::<_, NotNegative>(&-1.0), Some(0.0));
    }
}
