//! The plots of the page.

use anyhow::Result;
use serde_json::Value;

use super::super::plot::{Axis, Plot, Point, Series, Style};
use super::super::results::{load, number};
use super::{Rows, slowdown};

const BLUE: &str = "#3b82f6";
const ORANGE: &str = "#f97316";
const GREEN: &str = "#22a36a";
const PURPLE: &str = "#a855f7";
const GREY: &str = "#808080";

/// Slow-down over call rate with one thread, as `docs/overhead-by-rate.svg`.
pub fn by_rate() -> Result<Option<String>> {
    load("overhead.json")?.map(|results| by_rate_of(&results)).transpose()
}

/// What the tracer says over what was measured, as `docs/overhead-estimated.svg`.
pub fn estimated() -> Result<Option<String>> {
    load("overhead.json")?.map(|results| estimated_of(&results)).transpose()
}

fn percent_axis(label: &'static str) -> Axis {
    Axis { label, low: -2, high: 2, unit: " %" }
}

fn by_rate_of(results: &Value) -> Result<String> {
    let rows = Rows::of(results);
    let of_way = |way: &'static str| rows.rows.iter().filter(move |row| row["way"] == way && row["threads"] == 1);
    let line = |name: &str, way, colour| Series {
        name: name.to_owned(),
        colour,
        style: Style::Line,
        points: of_way(way).map(measured_over_rate).collect(),
    };
    let noise = of_way("untraced").map(|row| Point::exact(rate(row), rows.noise(row) * 100.0));
    let plot = Plot {
        title: "Slow-down over call rate",
        x: Axis { label: "calls per second, untraced", low: 2, high: 6, unit: "" },
        y: percent_axis("slow-down"),
        series: vec![
            Series { name: "noise".to_owned(), colour: GREY, style: Style::Guide, points: noise.collect() },
            line("gpuwhy, budget 1 %", "default", BLUE),
            line("gpuwhy, everything", "everything", ORANGE),
            line("bpftrace", "bpftrace", PURPLE),
        ],
    };
    plot.render()
}

fn rate(row: &Value) -> f64 {
    number(&row["untraced_per_second"])
}

fn measured_over_rate(row: &Value) -> Point {
    let figure = |name: &str| number(&row["slowdown"][name]) * 100.0;
    Point { x: rate(row), y: figure("median"), low: figure("low"), high: figure("high") }
}

fn estimated_of(results: &Value) -> Result<String> {
    let rows = Rows::of(results);
    let points = |name: &str, colour, is_in: fn(&Value) -> bool| Series {
        name: name.to_owned(),
        colour,
        style: Style::Points,
        points: rows
            .rows
            .iter()
            .filter(|row| is_in(row) && !rows.is_noise(row))
            .filter_map(|row| Some(Point::exact(slowdown(row) * 100.0, rows.estimate(row)? * 100.0)))
            .collect(),
    };
    let plot = Plot {
        title: "Estimated over measured slow-down",
        x: percent_axis("measured"),
        y: percent_axis("estimated by the tracer"),
        series: vec![
            Series {
                name: "equal".to_owned(),
                colour: GREY,
                style: Style::Guide,
                points: vec![Point::exact(0.01, 0.01), Point::exact(100.0, 100.0)],
            },
            points("with a budget", BLUE, |row| row["budget"].is_f64()),
            points("everything", ORANGE, |row| row["way"] == "everything"),
            points("pinned to a rung", GREEN, |row| row["rung"].is_string()),
        ],
    };
    plot.render()
}
