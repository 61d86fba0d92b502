//! Pictures, drawn by `plotters` as SVG with real text.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Blue, orange, green, purple: told apart by those who see no red or no green, on white and on
/// black.
const COLORS: [RGBColor; 4] =
    [RGBColor(66, 133, 200), RGBColor(222, 143, 45), RGBColor(70, 160, 110), RGBColor(150, 110, 190)];
const GRID: RGBColor = RGBColor(128, 136, 148);
const FONT: &str = "system-ui, sans-serif";
const WIDTH: u32 = 900;
const ROW: u32 = 24;
const NAMES: i32 = 190;
const TOP: i32 = 30;

/// One line of bars: its name, and for every series a number that is not negative.
pub struct Bar {
    pub name: String,
    pub values: Vec<f64>,
}

/// Lengths of bars.
#[derive(Clone, Copy)]
pub enum Scale {
    /// From zero on.
    Linear,
    /// Powers of ten; what is below the smallest shown is no bar.
    Logarithmic,
}

/// Bars from left to right, one line a name; series of a line stand one after the other if
/// `stacked`, else below each other.
pub fn bars(
    series: &[&str],
    bars: &[Bar],
    scale: Scale,
    stacked: bool,
    show: &dyn Fn(f64) -> String,
) -> String {
    let lines = if stacked { 1 } else { series.len().max(1) as u32 };
    let height = TOP as u32 + bars.len() as u32 * (ROW * lines + 6) + 10;
    let total = |bar: &Bar| {
        if stacked { bar.values.iter().sum() } else { bar.values.iter().copied().fold(0.0, f64::max) }
    };
    let largest = bars.iter().map(total).fold(0.0, f64::max);
    let positive = bars.iter().flat_map(|bar| &bar.values).copied().filter(|v| *v > 0.0);
    let smallest = positive.fold(f64::INFINITY, f64::min).min(largest);
    let room = f64::from(WIDTH as i32 - NAMES - 110);
    let length = |value: f64| -> i32 {
        let part = match scale {
            _ if largest <= 0.0 || value <= 0.0 => 0.0,
            Scale::Linear => value / largest,
            Scale::Logarithmic => {
                let (low, high) = (smallest.log10() - 0.5, largest.log10());
                (value.log10() - low) / (high - low)
            }
        };
        (part * room).round() as i32
    };
    draw(height, |area| {
        legend(area, series)?;
        let mut y = TOP;
        for bar in bars {
            text(area, &shortened(&bar.name), (NAMES - 8, y + ROW as i32 / 2), HPos::Right)?;
            let mut x = NAMES;
            for (number, value) in bar.values.iter().enumerate() {
                let end = x + length(*value);
                let style = color(series, number).filled();
                area.draw(&Rectangle::new([(x, y + 3), (end, y + ROW as i32 - 3)], style))?;
                if !stacked {
                    text(area, &show(*value), (end + 6, y + ROW as i32 / 2), HPos::Left)?;
                    y += ROW as i32;
                } else {
                    x = end;
                }
            }
            if stacked {
                text(area, &show(total(bar)), (x + 6, y + ROW as i32 / 2), HPos::Left)?;
                y += ROW as i32;
            }
            y += 6;
        }
        Ok(())
    })
}

/// What happened after what: spans of seconds, each on a line of its own, with a note behind it.
pub fn timeline(spans: &[(String, f64, f64, String)], show: &dyn Fn(f64) -> String) -> String {
    let end = spans.iter().map(|(_, _, end, _)| *end).fold(0.0, f64::max);
    let height = TOP as u32 + spans.len() as u32 * ROW + 10;
    let room = f64::from(WIDTH as i32 - NAMES - 150);
    let at = |seconds: f64| NAMES + if end > 0.0 { (seconds / end * room).round() as i32 } else { 0 };
    draw(height, |area| {
        for part in 0..=4 {
            let seconds = end * f64::from(part) / 4.0;
            let x = at(seconds);
            area.draw(&PathElement::new(vec![(x, TOP - 6), (x, height as i32)], GRID.mix(0.4)))?;
            text(area, &show(seconds), (x, TOP - 16), HPos::Center)?;
        }
        for (line, (name, from, to, note)) in spans.iter().enumerate() {
            let y = TOP + line as i32 * ROW as i32;
            text(area, &shortened(name), (NAMES - 8, y + ROW as i32 / 2), HPos::Right)?;
            let right = at(*to).max(at(*from) + 1);
            area.draw(&Rectangle::new(
                [(at(*from), y + 3), (right, y + ROW as i32 - 3)],
                COLORS[0].filled(),
            ))?;
            text(area, note, (right + 6, y + ROW as i32 / 2), HPos::Left)?;
        }
        Ok(())
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw(height: u32, content: impl for<'a> Fn(&Area<'a>) -> Drawn<'a>) -> String {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let drawn = content(&area).and_then(|()| area.present());
        drawn.expect("a string takes all that is written to it");
    }
    // The page says how wide a picture is.
    let size = format!("width=\"{WIDTH}\" height=\"{height}\" ");
    svg.replacen(&size, "", 1)
}

fn legend<'a>(area: &Area<'a>, series: &[&str]) -> Drawn<'a> {
    if series.len() < 2 {
        return Ok(());
    }
    for (number, name) in series.iter().enumerate() {
        let x = NAMES + number as i32 * 140;
        area.draw(&Rectangle::new([(x, 8), (x + 12, 20)], color(series, number).filled()))?;
        text(area, name, (x + 18, 14), HPos::Left)?;
    }
    Ok(())
}

fn text<'a>(area: &Area<'a>, words: &str, at: (i32, i32), side: HPos) -> Drawn<'a> {
    let style = TextStyle::from((FONT, 13).into_font()).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(words.to_owned(), at, style))
}

/// A phase has one color in all pictures.
fn color(series: &[&str], number: usize) -> RGBColor {
    let phases = ["offline", "online", "input", "output"];
    let phase = series.get(number).and_then(|name| phases.iter().position(|phase| phase == name));
    COLORS[phase.unwrap_or(number) % COLORS.len()]
}

/// Names longer than their column lose their middle.
fn shortened(name: &str) -> String {
    const LONGEST: usize = 27;
    let letters: Vec<char> = name.chars().collect();
    match letters.len() {
        0..=LONGEST => name.into(),
        n => letters[..13].iter().chain(&['…']).chain(&letters[n - 13..]).collect(),
    }
}
