//! One chart of a figure.

use std::borrow::Cow;
use std::collections::BTreeSet;

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::scale::Scale;
use super::{Area, Drawn, FINE, GRID, INK, LEFT, MUTED, X_AXIS, bold, color, dash, fine, plain};

/// One chart: lines, points, or both over common axes.
pub struct Panel {
    /// In CSS pixels, without the numbers below the plot.
    pub height: u32,
    /// Written above the plot.
    pub title: String,
    pub x: Scale,
    pub x_label: Cow<'static, str>,
    pub y: Scale,
    pub y_label: Cow<'static, str>,
    /// Drawn first, pale, with an outline.
    pub fills: Vec<Fill>,
    pub lines: Vec<Line>,
    pub clouds: Vec<Cloud>,
    /// Short texts, centred on a place.
    pub texts: Vec<Note>,
}

/// A text in a chart.
pub struct Note {
    pub at: (f64, f64),
    pub text: String,
    pub tint: RGBColor,
    /// Whether it stands to the right of the place, and not on it.
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
    /// Whether the samples are drawn too, for sparse ones.
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
    pub fn draw(&self, area: &Area<'_>, has_x_axis: bool) -> Drawn {
        area.draw_text(&self.title, &bold(13.0).color(&INK), (fine(LEFT), fine(6)))?;
        let below = if has_x_axis { fine(X_AXIS - 8) } else { 0 };
        let room = (area.dim_in_pixel().0 / FINE).saturating_sub(LEFT);
        let x = self.x.clone().thinned((room / TICK_WIDTH) as usize);
        let mut chart = ChartBuilder::on(area)
            .margin_top(fine(26))
            .margin_bottom(fine(8))
            .margin_left(fine(LABEL_MARGIN))
            .margin_right(fine(18))
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
        // The dots of all variants come first, so that they hide no drop or mark.
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
        for note in &self.texts {
            let (side, shift) = match note.is_beside {
                true => (HPos::Left, fine(5)),
                false => (HPos::Center, 0),
            };
            let style = plain(11.0)
                .color(&note.tint)
                .pos(Pos::new(side, VPos::Center));
            let (x, y) = place(&note.at);
            flat.draw_text(&note.text, &style, (x + shift, y))?;
        }
        Ok(())
    }
}

impl Line {
    fn draw(&self, plot: &Area<'_>, places: &[Place]) -> Drawn {
        let (tint, pattern, width) = match self.look {
            Look::Variant(variant) => (color(variant), dash(variant), 1.6),
            Look::Reference => (MUTED, Some((3, 3)), 1.0),
        };
        stroke(plot, places, tint, pattern, width)?;
        // No line shows a sample between two gaps.
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
        // A white edge sets the crosses off from the dots of the same colour.
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

/// Keeps one of the points in each cell of a grid; the others would be hidden by it.
fn apart(places: Vec<Place>, grid: i32) -> Vec<Place> {
    let mut seen = BTreeSet::new();
    places
        .into_iter()
        .filter(|(x, y)| seen.insert((x.div_euclid(grid), y.div_euclid(grid))))
        .collect()
}

/// Draws dots on a grid of one CSS pixel, and dots that touch vertically as one: a picture of a million
/// packets is hardly larger than one of ten thousand.
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
/// Room for the number of a tick on the x axis, in CSS pixels.
const TICK_WIDTH: u32 = 42;
const DOT_RADIUS: i32 = FINE as i32 * 7 / 10;
const SIGNAL_GRID: i32 = 3 * FINE as i32;
