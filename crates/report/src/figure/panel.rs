//! One chart of a figure.

use std::borrow::Cow;
use std::collections::BTreeSet;

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::scale::Scale;
use super::{
    Area, Drawn, FINE, GRID, INK, LEFT, MUTED, X_AXIS, bold, color, dash, fine, plain, text_width,
};

/// One chart with lines, points, or both on common axes.
pub struct Panel {
    /// The height in CSS pixels, without the numbers below the plot.
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
    /// Pale, without an outline: a band around a line.
    Band,
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
type Place = (i32, i32);

impl Panel {
    /// Draws the panel into an area. The last panel of a stack has the numbers of the x axis below it.
    /// Texts are `stretch` times as wide as measured.
    pub fn draw(&self, area: &Area<'_>, has_x_axis: bool, stretch: f64) -> Drawn {
        area.draw_text(&self.title, &bold(13.0).color(&INK), (fine(LEFT), fine(6)))?;
        let below = if has_x_axis { fine(X_AXIS - 8) } else { 0 };
        let room = (area.dim_in_pixel().0 / FINE).saturating_sub(LEFT);
        let wide = |text: &str, size| f64::from(text_width(text, size)) * stretch;
        let x = self.x.clone().thinned((room / TICK_WIDTH) as usize);
        let plot_width = room.saturating_sub(RIGHT);
        let x = x.without_overlaps(f64::from(plot_width), |label| wide(label, 12.0));
        let mut chart = ChartBuilder::on(area)
            .margin_top(fine(26))
            .margin_bottom(fine(8))
            .margin_left(fine(LABEL_MARGIN))
            .margin_right(fine(RIGHT))
            .set_label_area_size(LabelAreaPosition::Left, fine(LEFT - LABEL_MARGIN))
            .set_label_area_size(LabelAreaPosition::Bottom, below)
            .build_cartesian_2d(x, self.y.clone())?;
        chart
            .configure_mesh()
            .bold_line_style(GRID.stroke_width(FINE))
            .light_line_style(TRANSPARENT)
            .axis_style(MUTED.stroke_width(FINE))
            .set_all_tick_mark_size(fine(4))
            .label_style(plain(12.0).color(&INK))
            .axis_desc_style(plain(12.0).color(&MUTED))
            .x_desc(if has_x_axis { &*self.x_label } else { "" })
            .y_desc(&*self.y_label)
            .draw()?;
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
                FillStyle::Band => (tint.mix(0.16), 0.0),
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
        for cloud in &self.clouds {
            let style = color(cloud.variant).mix(0.7).filled();
            for corners in columns_of_dots(&places(&cloud.sent)) {
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
            .map(|note| ((wide(&note.text, 11.0) * f64::from(FINE)) as i32, fine(12)));
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

/// Keeps one point in each cell of a grid, which hides the others.
fn apart(places: Vec<Place>, grid: i32) -> Vec<Place> {
    let mut seen = BTreeSet::new();
    places
        .into_iter()
        .filter(|(x, y)| seen.insert((x.div_euclid(grid), y.div_euclid(grid))))
        .collect()
}

/// Rounds dots to a grid of one CSS pixel, and joins dots that touch vertically. So a picture of a
/// million packets is hardly larger than one of ten thousand.
fn columns_of_dots(places: &[Place]) -> Vec<[Place; 2]> {
    let grid = fine(1);
    let cells: BTreeSet<Place> = places
        .iter()
        .map(|(x, y)| (x.div_euclid(grid), y.div_euclid(grid)))
        .collect();
    let cells: Vec<Place> = cells.into_iter().collect();
    let touches = |a: &Place, b: &Place| a.0 == b.0 && a.1 + 1 == b.1;
    let middle = |cell: i32| cell * grid + grid / 2;
    cells
        .chunk_by(touches)
        .map(|run| {
            let ((x, top), (_, bottom)) = (run[0], run[run.len() - 1]);
            [
                (middle(x) - DOT_RADIUS, middle(top) - DOT_RADIUS),
                (middle(x) + DOT_RADIUS, middle(bottom) + DOT_RADIUS),
            ]
        })
        .collect()
}

/// plotters centres the label of the y axis on the edge of its area.
const LABEL_MARGIN: u32 = 12;
/// Room beside a chart, in CSS pixels.
const RIGHT: u32 = 18;
/// Room for the number of a tick on the x axis, in CSS pixels.
const TICK_WIDTH: u32 = 42;
const DOT_RADIUS: i32 = FINE as i32 * 7 / 10;
const SIGNAL_GRID: i32 = 3 * FINE as i32;

#[cfg(test)]
mod tests {
    use super::*;

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
