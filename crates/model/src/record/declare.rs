//! The way to declare a record.

use super::{Cell, CellType, Cells, Column, Put, Scalar};

/// Declares a struct together with the table that holds it:
///
/// ```text
/// record! {
///     /// What the struct is.
///     Name in table (key, columns) since 3 "What a row is."
///     given 0 {
///         /// What the file adds before the first field: its own ids and the session.
///         session_id: u32;
///     }
///     {
///         /// What the field says, for readers of the code and of the file.
///         field: u64 [unit("ns"), merge(Add)];
///         /// In a column of another name, stored bit by bit.
///         handle in handle_bits: Option<u64> as Bits [since(4)];
///         /// In several columns.
///         by_reason: [u64; 2] {
///             /// Of the first reason.
///             first_ns [unit("ns")];
///             /// Of the second.
///             second_ns [unit("ns")];
///         };
///     }
/// }
/// ```
///
/// In brackets stands what [`Column`] has functions for. A column that is added later is the last one, and says since which
/// version there is one.
macro_rules! record {
    (
        $(#[$meta:meta])*
        $name:ident in $table:ident ($($key:ident),*) since $since:literal $description:literal
        $(given $given_at:literal { $($(#[doc = $given_doc:literal])+ $given:ident: $given_type:ty;)+ })?
        {
            $(
                $(#[doc = $doc:literal])+
                $field:ident $(in $column:ident)?: $type:ty $(as $way:ident)? $([$($option:ident($value:expr)),+])?
                $({ $($(#[doc = $part_doc:literal])+ $part:ident $([$($part_option:ident($part_value:expr)),+])?;)+ })?;
            )+
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl $crate::Record for $name {
            const TABLE: $crate::TableFacts = $crate::TableFacts {
                name: stringify!($table),
                key: &[$(stringify!($key)),*],
                since: $since,
                description: $description,
            };

            fn columns() -> Vec<$crate::Column> {
                // Only records that add up say how.
                #[allow(unused_imports)]
                use $crate::Merge::{Add, Last, Least, Most};
                let columns = [$($crate::record::declare::of_field::<$type, record!(@way $($way)?)>(
                    record!(@named record!(@column $field $($column)?), $($doc)+) $($(.$option($value))+)?,
                    &[$($(record!(@named stringify!($part), $($part_doc)+) $($(.$part_option($part_value))+)?),+)?],
                )),+];
                #[allow(unused_mut)]
                let mut columns = columns.concat();
                $(columns.splice(
                    $given_at..$given_at,
                    [$(record!(@named stringify!($given), $($given_doc)+).given::<$given_type>()),+],
                );)?
                columns
            }

            fn put<P: $crate::Put>(&self, given: &[$crate::Cell<'_>], to: &mut P) -> Result<(), P::Error> {
                let mut given = $crate::record::declare::Given::new(given, record!(@given $($given_at)?));
                $(
                    given.put_before_field(to)?;
                    <record!(@way $($way)?) as $crate::record::Cells<$type>>::put(&self.$field, to)?;
                )+
                Ok(())
            }

            fn take(from: &mut impl $crate::Take) -> Option<Self> {
                // Read all of them first: what makes no sense must not shift the rest.
                $(let $field = <record!(@way $($way)?) as $crate::record::Cells<$type>>::take(from);)+
                Some(Self { $($field: $field?),+ })
            }
        }
    };
    (@named $name:expr, $($doc:literal)+) => { $crate::record::declare::named($name, concat!($($doc),+)) };
    (@way) => { $crate::record::Plain };
    (@way $way:ident) => { $crate::record::$way };
    (@column $field:ident) => { stringify!($field) };
    (@column $field:ident $column:ident) => { stringify!($column) };
    (@given) => { 0 };
    (@given $at:literal) => { $at };
}
pub(crate) use record;

/// A column whose type its field says. `doc` is a doc comment, whose lines begin with a blank.
pub(crate) fn named(name: &'static str, doc: &'static str) -> Column {
    Column::new(name, CellType::Integer, doc.trim_start())
}

/// The columns of a field: `whole`, or `parts` where it has several.
pub(crate) fn of_field<T, Way: Cells<T>>(whole: Column, parts: &[Column]) -> Vec<Column> {
    let columns = if parts.is_empty() { &[whole] } else { parts };
    let types = Way::types();
    debug_assert_eq!(columns.len(), types.len(), "columns of {}", whole.name);
    columns.iter().zip(types).map(|(column, (kind, is_optional))| Column { kind, is_optional, ..*column }).collect()
}

impl Column {
    /// A column that the file adds.
    pub(crate) fn given<T: Scalar>(self) -> Self {
        Self { kind: T::TYPE, is_given: true, ..self }
    }
}

/// Cells that the file adds to a row, after so many fields.
pub(crate) struct Given<'c> {
    cells: &'c [Cell<'c>],
    fields_before: usize,
}

impl<'c> Given<'c> {
    pub fn new(cells: &'c [Cell<'c>], fields_before: usize) -> Self {
        Self { cells, fields_before }
    }

    pub fn put_before_field<P: Put>(&mut self, to: &mut P) -> Result<(), P::Error> {
        if self.fields_before > 0 {
            self.fields_before -= 1;
            return Ok(());
        }
        std::mem::take(&mut self.cells).iter().try_for_each(|cell| to.put(cell.clone()))
    }
}
