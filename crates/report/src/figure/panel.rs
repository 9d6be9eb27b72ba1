//! One chart of a figure.

use std::borrow::Cow;

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::dots::{apart, columns_of_dots};
use super::scale::Scale;
use super::text::{Measure, break_lines, breaks_well, shortened, shortened_apart};
use super::{AXIS_SIZE, Area, Drawn, FINE, GRID, INK, MUTED, bold, color, dash, fine, plain};

/// One chart with lines, points, or both on common axes.
pub struct Panel {
    /// The height in CSS pixels, without the numbers below the plot; zero if it depends on the width.
    pub height: u32,
    /// The title above the plot.
    pub title: String,
    pub x: Scale,
    pub x_label: Cow<'static, str>,
    pub y: Scale,
    pub y_label: Cow<'static, str>,
    /// The shapes, drawn before everything else.
    pub fills: Vec<Fill>,
    pub lines: Vec<Line>,
    pub clouds: Vec<Cloud>,
    /// Short texts at places in the plot.
    pub texts: Vec<Note>,
}

/// A text in a chart.
pub struct Note {
    pub at: (f64, f64),
    pub text: String,
    pub tint: RGBColor,
    /// Whether the text is to the right of its place; otherwise it is centred on the place.
    pub is_beside: bool,
}

/// A closed shape of a variant, such as a bar.
pub struct Fill {
    pub variant: usize,
    pub corners: Vec<(f64, f64)>,
    pub style: FillStyle,
}

/// The way a shape is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FillStyle {
    /// Pale, with an outline.
    Outlined,
    /// Pale, with a thin outline: a band around a line.
    Band,
    /// Very pale, with a thin outline: one of several bands that overlap.
    PaleBand,
    /// Only a thin outline.
    Thin,
    /// In one colour.
    Solid(RGBColor),
}

/// A line, broken into pieces by gaps.
pub struct Line {
    pub look: Look,
    pub pieces: Vec<Vec<(f64, f64)>>,
    /// Whether the samples are drawn as dots, too, because they are sparse.
    pub has_dots: bool,
}

/// The subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A variant, or a flow if there is only one variant.
    Variant(usize),
    /// A reference, such as the rate of the link.
    Reference,
}

/// The packets of a variant.
#[derive(Default)]
pub struct Cloud {
    pub variant: usize,
    pub sent: Vec<(f64, f64)>,
    pub marked: Vec<(f64, f64)>,
    pub dropped: Vec<(f64, f64)>,
}

/// A point of a plot, in drawing units.
pub type Place = (i32, i32);

impl Panel {
    /// The room that the numbers of the y axis and its label need left of the plot, at most `most`.
    pub fn left(&self, most: u32, measure: Measure) -> u32 {
        let labels = self.y.labels();
        let widths = labels.iter().map(|label| measure.plain(label, AXIS_SIZE));
        let label = if self.y_label.is_empty() { 2 } else { Y_LABEL };
        (label + widths.max().unwrap_or(0) + 10).clamp(LEAST_LEFT, most.max(LEAST_LEFT))
    }

    /// The width at which the plot and the names below its columns are legible.
    pub fn needed_width(&self, left: u32, measure: Measure) -> u32 {
        let labels = match self.x.is_words() {
            true => self.x.labels(),
            false => Vec::new(),
        };
        let widest = labels
            .iter()
            .map(|name| measure.plain(name, AXIS_SIZE) + 6)
            .max();
        let names = widest.unwrap_or(0) * labels.len() as u32;
        left + RIGHT + names.clamp(NARROWEST, WIDEST_NAMES)
    }

    /// Draws the panel into an area.
    pub fn draw(&self, area: &Area<'_>, frame: &Frame) -> Drawn {
        let measure = frame.measure;
        let wide = |text: &str, size| f64::from(measure.plain(text, size));
        let left = frame.left;
        for (line, text) in frame.title.iter().enumerate() {
            let y = 6 + line as u32 * PANEL_TITLE_LINE;
            area.draw_text(text, &bold(13.0).color(&INK), (fine(left), fine(y)))?;
        }
        let plot_width = frame.width.saturating_sub(left + RIGHT);
        let x = match self.x.is_words() {
            true => self.x.clone().unlabelled(),
            false => self.x.clone().thinned((plot_width / TICK_WIDTH) as usize),
        };
        let x = x.without_overlaps(f64::from(plot_width), |label| wide(label, AXIS_SIZE));
        let y = self.y.clone().thinned((frame.plot / TICK_HEIGHT) as usize);
        let room = left.saturating_sub(if self.y_label.is_empty() {
            12
        } else {
            Y_LABEL + 10
        });
        let y = y
            .relabelled(|label| shortened(label, room, &|text| measure.plain(text, AXIS_SIZE)))
            .without_overlaps(f64::from(frame.plot), |_| AXIS_SIZE);
        let y_label = fitting_label(&self.y_label, frame.height() - 4, measure);
        let mut chart = ChartBuilder::on(area)
            .margin_top(fine(frame.above))
            .margin_bottom(fine(8))
            .margin_left(fine(LABEL_MARGIN))
            .margin_right(fine(RIGHT))
            .set_label_area_size(LabelAreaPosition::Left, fine(left - LABEL_MARGIN))
            .set_label_area_size(LabelAreaPosition::Bottom, fine(frame.below - 8))
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID.stroke_width(FINE))
            .light_line_style(TRANSPARENT)
            .axis_style(MUTED.stroke_width(FINE))
            .set_all_tick_mark_size(fine(4))
            .label_style(plain(AXIS_SIZE).color(&INK))
            .axis_desc_style(plain(AXIS_SIZE).color(&MUTED))
            .y_desc(y_label)
            .draw()?;
        self.draw_below(area, frame, plot_width)?;
        let plot = chart.plotting_area();
        let (columns, rows) = plot.get_pixel_range();
        let place = |&(x, y): &(f64, f64)| -> Place {
            let (column, row) = plot.map_coordinate(&(x, y));
            (column - columns.start, row - rows.start)
        };
        let places = |points: &[(f64, f64)]| -> Vec<Place> {
            let drawn = points.iter().filter(|(x, _)| !self.x.ends_before(*x));
            drawn.map(place).collect()
        };
        let flat = plot.strip_coord_spec();
        for fill in &self.fills {
            let corners: Vec<Place> = fill.corners.iter().map(place).collect();
            let tint = color(fill.variant);
            let (inner, outline) = match fill.style {
                FillStyle::Outlined => (tint.mix(0.22), 1.4),
                FillStyle::Band => (tint.mix(0.16), 0.4),
                FillStyle::PaleBand => (tint.mix(0.07), 0.5),
                FillStyle::Thin => (tint.mix(0.0), 0.5),
                FillStyle::Solid(own) => (own.mix(1.0), 0.0),
            };
            flat.draw(&Polygon::new(corners.clone(), inner.filled()))?;
            if outline > 0.0 {
                stroke(&flat, &corners, tint, dash(fill.variant), outline)?;
            }
        }
        for line in &self.lines {
            for piece in &line.pieces {
                line.draw(&flat, &places(piece))?;
            }
        }
        // Draw the dots of all variants first, so that they hide no drop or mark.
        let sent: Vec<Vec<Place>> = self
            .clouds
            .iter()
            .map(|cloud| places(&cloud.sent))
            .collect();
        for (cloud, corners) in self.clouds.iter().zip(columns_of_dots(&sent)) {
            let style = color(cloud.variant).mix(0.7).filled();
            for corners in corners {
                flat.draw(&Rectangle::new(corners, style))?;
            }
        }
        for cloud in &self.clouds {
            cloud.draw_marks(&flat, &places(&cloud.marked))?;
            cloud.draw_drops(&flat, &places(&cloud.dropped))?;
        }
        let (beside, on): (Vec<&Note>, Vec<&Note>) =
            self.texts.iter().partition(|note| note.is_beside);
        let style = |note: &Note, side| {
            let style = plain(11.0).color(&note.tint);
            style.pos(Pos::new(side, VPos::Center))
        };
        for note in on {
            flat.draw_text(&note.text, &style(note, HPos::Center), place(&note.at))?;
        }
        let dots: Vec<Place> = beside.iter().map(|note| place(&note.at)).collect();
        let sizes = beside
            .iter()
            .map(|note| (fine(measure.plain(&note.text, 11.0)), fine(12)));
        let field = (columns.end - columns.start, rows.end - rows.start);
        let boxes = beside_dots(&dots, &sizes.collect::<Vec<_>>(), field);
        for ((note, dot), text) in beside.into_iter().zip(&dots).zip(boxes) {
            let middle = (text.left + text.right) / 2;
            let at = (middle, (text.top + text.bottom) / 2);
            if text.distance(*dot) > fine(8) {
                // A line connects a text that is farther away with its dot.
                let end = (
                    dot.0.clamp(text.left, text.right),
                    dot.1.clamp(text.top, text.bottom),
                );
                stroke(&flat, &[*dot, end], note.tint, None, 0.5)?;
            }
            flat.draw_text(&note.text, &style(note, HPos::Center), at)?;
        }
        Ok(())
    }

    /// Draws the names of the columns and the label of the x axis below the plot.
    fn draw_below(&self, area: &Area<'_>, frame: &Frame, plot_width: u32) -> Drawn {
        let bottom = frame.above + frame.plot;
        let middle = |share: f64| fine(frame.left) + (share * f64::from(fine(plot_width))) as i32;
        let style = plain(AXIS_SIZE).color(&INK);
        let places = self.x.places();
        let mut below = bottom + 7;
        match &frame.names {
            Names::None if self.x.is_words() => {}
            Names::None => below += 15,
            Names::Lines(names) => {
                let top = style.pos(Pos::new(HPos::Center, VPos::Top));
                for (name, share) in names.iter().zip(&places) {
                    for (line, text) in (0..).zip(name) {
                        let y = fine(below + line * NAME_LINE);
                        area.draw_text(text, &top, (middle(*share), y))?;
                    }
                }
                let lines = names.iter().map(Vec::len).max().unwrap_or(0) as u32;
                below += lines * NAME_LINE + 1;
            }
            Names::Upright(names, room) => {
                let upright = style.transform(FontTransform::Rotate270);
                let upright = upright.pos(Pos::new(HPos::Right, VPos::Center));
                for (name, share) in names.iter().zip(&places) {
                    area.draw_text(name, &upright, (middle(*share), fine(below)))?;
                }
                below += room + 4;
            }
        }
        let muted = plain(AXIS_SIZE).color(&MUTED);
        let muted = muted.pos(Pos::new(HPos::Center, VPos::Top));
        for text in &frame.x_label {
            // A label that is wider than the plot stays on the sheet.
            let half = frame.measure.plain(text, AXIS_SIZE).div_ceil(2) + 2;
            let ends = (fine(half), fine(frame.width.saturating_sub(half).max(half)));
            let x = middle(0.5).clamp(ends.0, ends.1);
            area.draw_text(text, &muted, (x, fine(below)))?;
            below += X_LABEL_LINE;
        }
        Ok(())
    }

    /// The height of the plot, if nothing else is requested.
    fn usual_plot(&self, plot_width: u32) -> u32 {
        if self.height > 0 {
            return self.height - 34;
        }
        let rows = self.y.labels().len() as u32;
        match (self.x.is_words(), self.y.is_words()) {
            (true, true) => (rows * 26).clamp(100, 320),
            (true, false) => (plot_width / 2).clamp(96, 170),
            (false, _) => (plot_width * 2 / 3).clamp(130, 226),
        }
    }
}

/// The label of a y axis, or a part of it that fits.
fn fitting_label(label: &str, room: u32, measure: Measure) -> String {
    let wide = |text: &str| measure.plain(text, AXIS_SIZE);
    let unit = label.split(',').next().unwrap_or_default();
    let choices = [
        label.to_owned(),
        label.replace("logarithmic", "log"),
        unit.to_owned(),
    ];
    let fitting = choices.into_iter().find(|choice| wide(choice) <= room);
    fitting.unwrap_or_else(|| shortened(unit, room, &wide))
}

/// The room of a panel on its sheet, in CSS pixels, and its texts in lines.
#[derive(Clone, Debug)]
pub struct Frame {
    width: u32,
    left: u32,
    /// The room above the plot.
    pub above: u32,
    /// The height of the plot.
    pub plot: u32,
    /// The room below the plot.
    pub below: u32,
    title: Vec<String>,
    x_label: Vec<String>,
    names: Names,
    measure: Measure,
}

/// The names below columns.
#[derive(Clone, Debug)]
enum Names {
    /// There are none, or they find no room.
    None,
    /// Each in lines.
    Lines(Vec<Vec<String>>),
    /// Each upright, and the room that the longest needs.
    Upright(Vec<String>, u32),
}

impl Names {
    /// The names below columns. If a legend has them, too, none are better than some that look alike.
    fn of(x: &Scale, plot_width: u32, is_in_legend: bool, measure: Measure) -> Names {
        let names = x.labels();
        let wide = |text: &str| measure.plain(text, AXIS_SIZE);
        let column = plot_width / (names.len() as u32).max(1);
        let room = column.saturating_sub(5);
        let lines = names.iter().map(|name| break_lines(name, room, &wide));
        let lines: Vec<Vec<String>> = lines.collect();
        if names.iter().all(|name| breaks_well(name, room, &wide))
            && lines.iter().all(|lines| lines.len() <= MOST_NAME_LINES)
        {
            return Names::Lines(lines);
        }
        if column < UPRIGHT_WIDTH {
            return Names::None;
        }
        // Cut names that differ still hide their ends.
        let [_, most] = LONGEST_UPRIGHT;
        let are_whole = names.iter().all(|name| wide(name) <= most);
        let short = match are_whole {
            true => Some(names.clone()),
            false => shortened_apart(&names, LONGEST_UPRIGHT, &wide),
        };
        let names = match short {
            Some(short) => short,
            None if is_in_legend => return Names::None,
            None => names,
        };
        let room = names.iter().map(|name| wide(name)).max().unwrap_or(0);
        Names::Upright(names, room)
    }
}

impl Frame {
    /// The frame of a panel in a place of a width, with the plot's left edge at `left`. Only the last
    /// panel of a stack has an x axis. The names of columns may also be in the legend.
    pub fn new(
        panel: &Panel,
        (width, left): (u32, u32),
        (has_x_axis, is_in_legend): (bool, bool),
        measure: Measure,
    ) -> Frame {
        let plot_width = width.saturating_sub(left + RIGHT);
        let title = match panel.title.is_empty() {
            true => Vec::new(),
            false => {
                let wide = |text: &str| measure.bold(text, 13.0);
                break_lines(&panel.title, width.saturating_sub(left + 4), &wide)
            }
        };
        let names = match has_x_axis && panel.x.is_words() {
            true => Names::of(&panel.x, plot_width, is_in_legend, measure),
            false => Names::None,
        };
        let x_label = match has_x_axis && !panel.x_label.is_empty() {
            true => break_lines(&panel.x_label, width.saturating_sub(8), &|text| {
                measure.plain(text, AXIS_SIZE)
            }),
            false => Vec::new(),
        };
        let numbers = match &names {
            _ if !has_x_axis => 0,
            Names::None if panel.x.is_words() => 4,
            Names::None => 22,
            Names::Lines(names) => {
                let lines = names.iter().map(Vec::len).max().unwrap_or(0) as u32;
                8 + lines * NAME_LINE
            }
            Names::Upright(_, room) => 11 + room,
        };
        Frame {
            width,
            left,
            above: match title.len() as u32 {
                0 => 10,
                lines => 10 + lines * PANEL_TITLE_LINE,
            },
            plot: panel.usual_plot(plot_width),
            below: 8 + numbers + x_label.len() as u32 * X_LABEL_LINE,
            title,
            x_label,
            names,
            measure,
        }
    }

    /// The height of the whole panel.
    pub const fn height(&self) -> u32 {
        self.above + self.plot + self.below
    }

    /// Whether each column has its name below it.
    pub const fn has_names(&self) -> bool {
        !matches!(self.names, Names::None)
    }
}

/// The place of a text, in drawing units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TextBox {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl TextBox {
    fn around((x, y): Place, (width, height): (i32, i32)) -> TextBox {
        TextBox {
            left: x - width / 2,
            right: x + width / 2,
            top: y - height / 2,
            bottom: y + height / 2,
        }
    }

    fn overlaps(&self, other: &TextBox) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// The distance of a point from the box along the axes, whichever is larger.
    fn distance(&self, (x, y): Place) -> i32 {
        let beyond = |at: i32, from: i32, to: i32| (from - at).max(at - to).max(0);
        beyond(x, self.left, self.right).max(beyond(y, self.top, self.bottom))
    }
}

/// Returns a place for a text beside each dot. The text covers neither a dot nor another text, is
/// as close as possible, and is to the right of its dot if there is a choice.
fn beside_dots(dots: &[Place], sizes: &[(i32, i32)], (width, height): (i32, i32)) -> Vec<TextBox> {
    const WAYS: [(i32, i32); 8] = [
        (1, 0),
        (1, -1),
        (1, 1),
        (-1, 0),
        (0, -1),
        (0, 1),
        (-1, -1),
        (-1, 1),
    ];
    let mut placed: Vec<TextBox> = Vec::new();
    for (&(x, y), &size) in dots.iter().zip(sizes) {
        let at = |(across, down): (i32, i32), gap: u32| {
            let x = x + across * (fine(gap) + size.0 / 2);
            TextBox::around((x, y + down * (fine(gap) + size.1 / 2)), size)
        };
        let is_free = |text: &TextBox| {
            let is_inside =
                text.left >= 0 && text.right <= width && text.top >= 0 && text.bottom <= height;
            is_inside
                && dots.iter().all(|dot| text.distance(*dot) >= fine(2))
                && placed.iter().all(|other| !text.overlaps(other))
        };
        let mut choices = [4, 10, 18, 28, 40, 54, 70]
            .into_iter()
            .flat_map(|gap| WAYS.map(|way| at(way, gap)));
        let chosen = choices.find(is_free);
        placed.push(chosen.unwrap_or_else(|| at(WAYS[0], 4)));
    }
    placed
}

impl Line {
    fn draw(&self, plot: &Area<'_>, places: &[Place]) -> Drawn {
        let (tint, pattern, width) = match self.look {
            Look::Variant(variant) => (color(variant), dash(variant), 1.6),
            Look::Reference => (MUTED, Some((3, 3)), 1.0),
        };
        stroke(plot, places, tint, pattern, width)?;
        // A sample between two gaps has no line, so it needs a dot.
        if self.has_dots || places.len() == 1 {
            for &at in places {
                plot.draw(&Circle::new(at, fine(2), tint.filled()))?;
            }
        }
        Ok(())
    }
}

impl Cloud {
    fn draw_marks(&self, plot: &Area<'_>, places: &[Place]) -> Drawn {
        for (x, y) in apart(places.to_vec(), SIGNAL_GRID) {
            let size = fine(4);
            let corners = [
                (x, y - size),
                (x + size, y + size * 3 / 4),
                (x - size, y + size * 3 / 4),
                (x, y - size),
            ];
            plot.draw(&Polygon::new(corners, WHITE.filled()))?;
            plot.draw(&PathElement::new(
                corners,
                color(self.variant).stroke_width(FINE * 14 / 10),
            ))?;
        }
        Ok(())
    }

    fn draw_drops(&self, plot: &Area<'_>, places: &[Place]) -> Drawn {
        let drops = apart(places.to_vec(), SIGNAL_GRID);
        // A white edge makes the crosses visible on dots of the same colour.
        for (tint, width) in [
            (WHITE, FINE * 35 / 10),
            (color(self.variant), FINE * 15 / 10),
        ] {
            for &at in &drops {
                plot.draw(&Cross::new(at, fine(7) / 2, tint.stroke_width(width)))?;
            }
        }
        Ok(())
    }
}

/// Draws a line, dashed or not, with a width in CSS pixels.
pub fn stroke(
    area: &Area<'_>,
    places: &[Place],
    tint: RGBColor,
    pattern: Option<(u32, u32)>,
    width: f64,
) -> Drawn {
    let style = tint.stroke_width((width * f64::from(FINE)) as u32);
    match pattern {
        None => area.draw(&PathElement::new(places.to_vec(), style))?,
        Some((line, gap)) => area.draw(&DashedPathElement::new(
            places.to_vec(),
            fine(line),
            fine(gap),
            style,
        ))?,
    }
    Ok(())
}

/// plotters centres the label of the y axis on the edge of its area.
const LABEL_MARGIN: u32 = 12;
/// Room beside a chart, in CSS pixels.
const RIGHT: u32 = 18;
/// Room for the number of a tick on the x axis and on the y axis, in CSS pixels.
const TICK_WIDTH: u32 = 42;
const TICK_HEIGHT: u32 = 20;
/// Room for the label of the y axis, and the least room left of a plot.
const Y_LABEL: u32 = 26;
const LEAST_LEFT: u32 = 40;
/// The least width of a plot beside others, and the width from which names need no more room.
const NARROWEST: u32 = 90;
const WIDEST_NAMES: u32 = 240;
/// Distances of lines.
const PANEL_TITLE_LINE: u32 = 16;
const NAME_LINE: u32 = 14;
const X_LABEL_LINE: u32 = 16;
/// Most lines of a name below its column, the width of an upright name, and the greatest length of one:
/// of names of which some are cut, and of whole ones, or those that would look alike.
const MOST_NAME_LINES: usize = 3;
const UPRIGHT_WIDTH: u32 = 14;
const LONGEST_UPRIGHT: [u32; 2] = [90, 200];
const SIGNAL_GRID: i32 = 3 * FINE as i32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_look_alike_are_left_to_the_legend() {
        super::super::register_fonts();
        let names = |x: &Scale, is_in_legend| {
            let measure = Measure { stretch: 1.0 };
            Names::of(x, 80, is_in_legend, measure)
        };
        // An `n` takes 7 pixels, so that both are far longer than an upright name may be.
        let long = "n".repeat(100);
        let both = [format!("{long} fifo"), format!("{long} codel")];
        // The word that both have is left out.
        let Names::Upright(short, _) = names(&Scale::words(both.to_vec()), true) else {
            panic!("there is room for upright names");
        };
        assert_eq!(short, ["fifo", "codel"]);
        let both = [format!("{long}1"), format!("{long}2")];
        let columns = Scale::words(both.to_vec());
        assert!(matches!(names(&columns, true), Names::None));
        // Names that fit are whole, although their beginnings of 90 pixels differ.
        let whole = ["fifo rate=10Mbit/s", "codel rate=40Mbit/s"].map(str::to_owned);
        let Names::Upright(drawn, _) = names(&Scale::words(whole.to_vec()), true) else {
            panic!("there is room for upright names");
        };
        assert_eq!(drawn, whole);
        // Without a legend, they are whole.
        let Names::Upright(whole, _) = names(&columns, false) else {
            panic!("there is room for upright names");
        };
        assert_eq!(whole, both);
    }

    #[test]
    fn texts_beside_crowded_dots_cover_neither_dots_nor_one_another() {
        let dots: Vec<Place> = (0..12).map(|k| (fine(150 + 4 * k), fine(100))).collect();
        let sizes = vec![(fine(14), fine(12)); dots.len()];
        let boxes = beside_dots(&dots, &sizes, (fine(400), fine(200)));
        for (at, text) in boxes.iter().enumerate() {
            assert!(
                dots.iter().all(|dot| text.distance(*dot) >= fine(2)),
                "{at}"
            );
            let mut others = boxes.iter().enumerate().filter(|(other, _)| *other != at);
            assert!(others.all(|(_, other)| !text.overlaps(other)), "{at}");
            assert!(text.left >= 0 && text.bottom <= fine(200), "{at}");
        }
        // A dot without neighbours has its text to the right.
        let alone = beside_dots(&dots[..1], &sizes[..1], (fine(400), fine(200)));
        assert_eq!(alone[0].left, dots[0].0 + fine(4));
    }
}
