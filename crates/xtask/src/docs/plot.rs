//! Plots as SVG text, with logarithmic axes: what tracing costs spans four powers of ten. The colours are readable on
//! light and dark pages, and the same figures always give the same bytes.

use std::fmt::Write;

use anyhow::Result;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 536.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 344.0;

pub struct Plot {
    pub title: &'static str,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

/// From one power of ten to another. What lies outside is drawn at its edge.
pub struct Axis {
    pub label: &'static str,
    pub low: i32,
    pub high: i32,
    pub unit: &'static str,
}

pub struct Series {
    pub name: String,
    pub colour: &'static str,
    pub style: Style,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Style {
    Points,
    /// Points joined by lines.
    Line,
    /// A dashed line without points, to read the others by.
    Guide,
}

/// A figure with the interval it is known to.
#[derive(Clone, Copy)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
}

impl Point {
    pub fn exact(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }
}

impl Axis {
    /// Where a value lies between the ends of the axis, from 0 to 1. Zero and less has no logarithm: it lies at 0.
    fn share(&self, value: f64) -> f64 {
        let span = f64::from(self.high - self.low);
        ((value.max(f64::MIN_POSITIVE).log10() - f64::from(self.low)) / span).clamp(0.0, 1.0)
    }

    /// The powers of ten, and what is written at them.
    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        (self.low..=self.high).map(|power| {
            let value = 10_f64.powi(power);
            let text = if power < 0 { format!("{value:.*}", power.unsigned_abs() as usize) } else { grouped(value) };
            (value, text + self.unit)
        })
    }
}

impl Plot {
    pub fn render(&self) -> Result<String> {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             font-family=\"sans-serif\" font-size=\"13\" fill=\"#808080\">\n<title>{}</title>\n",
            self.title
        );
        self.axes(&mut svg)?;
        for (row, series) in self.series.iter().enumerate() {
            self.series(&mut svg, series)?;
            legend(&mut svg, series, row)?;
        }
        svg.push_str("</svg>\n");
        Ok(svg)
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.share(value) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - self.y.share(value) * (BOTTOM - TOP)
    }

    fn axes(&self, svg: &mut String) -> Result<()> {
        let grid = "stroke=\"#808080\" stroke-opacity=\"0.3\"";
        for (value, text) in self.x.ticks() {
            let x = self.x(value);
            writeln!(svg, "<path d=\"M{x:.1} {TOP}V{BOTTOM}\" {grid}/>")?;
            writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>", BOTTOM + 18.0)?;
        }
        for (value, text) in self.y.ticks() {
            let y = self.y(value);
            writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" {grid}/>")?;
            writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>", LEFT - 8.0, y + 4.5)?;
        }
        let (middle_x, middle_y) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
        let below = BOTTOM + 42.0;
        writeln!(svg, "<text x=\"{middle_x:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{}</text>", self.x.label)?;
        let turned = format!("transform=\"translate(14 {middle_y:.1}) rotate(-90)\"");
        writeln!(svg, "<text {turned} text-anchor=\"middle\">{}</text>", self.y.label)?;
        Ok(())
    }

    fn series(&self, svg: &mut String, series: &Series) -> Result<()> {
        let colour = series.colour;
        if series.style != Style::Points {
            let places: Vec<String> =
                series.points.iter().map(|point| format!("{:.1},{:.1}", self.x(point.x), self.y(point.y))).collect();
            let places = places.join(" ");
            writeln!(svg, "<polyline points=\"{places}\" fill=\"none\" stroke=\"{colour}\"{}/>", dashes(series.style))?;
        }
        if series.style == Style::Guide {
            return Ok(());
        }
        for point in &series.points {
            let (x, y) = (self.x(point.x), self.y(point.y));
            let (low, high) = (self.y(point.low), self.y(point.high));
            writeln!(svg, "<path d=\"M{x:.1} {low:.1}V{high:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.6\"/>")?;
            writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>")?;
        }
        Ok(())
    }
}

fn legend(svg: &mut String, series: &Series, row: usize) -> Result<()> {
    let (x, y) = (RIGHT + 20.0, TOP + 12.0 + row as f64 * 22.0);
    let colour = series.colour;
    match series.style {
        Style::Points => writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>", x + 8.0)?,
        style => writeln!(svg, "<path d=\"M{x:.1} {y:.1}h16\" stroke=\"{colour}\"{}/>", dashes(style))?,
    }
    writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 24.0, y + 4.5, series.name)?;
    Ok(())
}

fn dashes(style: Style) -> &'static str {
    if style == Style::Guide { " stroke-dasharray=\"5 4\"" } else { " stroke-width=\"2\"" }
}

/// Thousands apart: 10,000.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digit.is_ascii_digit() && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0.0, 100.0, 1_000.0, 1_234_567.0].map(grouped), ["0", "100", "1,000", "1,234,567"]);
    }

    #[test]
    fn what_lies_outside_an_axis_is_drawn_at_its_edge() {
        let axis = Axis { label: "", low: -2, high: 2, unit: "" };
        assert_eq!([-5.0, 0.0, 0.001, 1.0, 1e9].map(|value| axis.share(value)), [0.0, 0.0, 0.0, 0.5, 1.0]);
    }
}
