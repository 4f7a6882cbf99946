//! The order in which calls are listed.

use std::cmp::Reverse;

use gpuwhy_agent::LiveRow;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Time,
    Rate,
    Slowest,
    Errors,
}

impl Order {
    pub fn next(self) -> Self {
        match self {
            Self::Time => Self::Rate,
            Self::Rate => Self::Slowest,
            Self::Slowest => Self::Errors,
            Self::Errors => Self::Time,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Rate => "rate",
            Self::Slowest => "p99",
            Self::Errors => "errors",
        }
    }

    /// Rows that are alike keep their place from one second to the next.
    pub fn sort(self, rows: &mut [LiveRow]) {
        let key = |row: &LiveRow| match self {
            Self::Time => row.sum_ns,
            Self::Rate => row.recent,
            Self::Slowest => row.histogram.quantile_ns(0.99).unwrap_or(0),
            Self::Errors => row.errors,
        };
        rows.sort_by_cached_key(|row| (Reverse(key(row)), Reverse(row.sum_ns), row.pid, row.op));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use gpuwhy_model::Histogram;

    pub fn row(op: &'static str, recent: u64, each_ns: u64, errors: u64) -> LiveRow {
        let mut histogram = Histogram::default();
        histogram.add(Histogram::index(each_ns), recent);
        LiveRow {
            pid: 4242,
            comm: "python".into(),
            op,
            count: recent,
            variance: 0.0,
            recent,
            sum_ns: recent * each_ns,
            runqueue_ns: 0,
            blocked_ns: 0,
            errors,
            histogram,
        }
    }

    fn sorted(order: Order) -> Vec<&'static str> {
        let mut rows = vec![row("often", 900, 1_000, 0), row("long", 3, 1_000_000, 0), row("failing", 5, 2_000, 5)];
        order.sort(&mut rows);
        rows.iter().map(|row| row.op).collect()
    }

    #[test]
    fn each_order_has_its_own_first() {
        assert_eq!(sorted(Order::Time), ["long", "often", "failing"]);
        assert_eq!(sorted(Order::Rate)[0], "often");
        assert_eq!(sorted(Order::Slowest)[0], "long");
        assert_eq!(sorted(Order::Errors)[0], "failing");
    }

    #[test]
    fn every_order_is_reached_and_the_first_comes_again() {
        let orders: Vec<_> =
            std::iter::successors(Some(Order::default()), |order| Some(order.next())).take(5).collect();
        let names: Vec<_> = orders.iter().map(|order| order.as_str()).collect();
        assert_eq!(names, ["time", "rate", "p99", "errors", "time"]);
    }
}
