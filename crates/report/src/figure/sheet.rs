//! A drawing: title, legend, charts and caption on one sheet.

use plotters::prelude::*;

use super::panel::{self, Frame, Panel};
use super::text::{Measure, break_lines};
use super::{
    Area, CAPTION_LINE, CAPTION_SIZE, Drawn, FAMILY, FINE, Figure, FigureError, INK, LEGEND_GAP,
    LEGEND_ROW, LEGEND_SIZE, MARGIN, MM_PER_INCH, MOST_BESIDE, MUTED, SWATCH, TITLE_LINE,
    TITLE_SIZE, bold, color, dash, escape, fine, plain, register_fonts, with_xml_characters,
};
use crate::raster::width_ratio;

/// The parts of a drawing.
pub struct Sheet {
    pub title: String,
    pub legend: Legend,
    pub panels: Vec<Panel>,
    /// The caption; empty for none.
    pub caption: String,
    /// Whether the charts are stacked on one time axis; otherwise they are side by side.
    pub is_over_time: bool,
}

/// The names of the colours.
#[derive(Default)]
pub struct Legend {
    /// What the names are values of; empty for names of runs.
    pub heading: String,
    /// Names, each with its look.
    pub names: Vec<(String, usize)>,
    /// The names of dashes, whatever the colour, each with a look that has the dash.
    pub patterns: Vec<(String, usize)>,
    /// Whether the columns of the charts have the same names below them.
    pub is_of_columns: bool,
}

impl Sheet {
    /// Draws the sheet as an SVG document.
    pub fn svg(&self, figure: &Figure) -> Result<String, FigureError> {
        if !Figure::WIDTHS.contains(&figure.width) {
            return Err(FigureError::Width {
                width: figure.width,
            });
        }
        register_fonts();
        let own = figure.font.as_deref();
        let stretch = own.map_or(1.0, |font| width_ratio(font, FAMILY));
        let layout = Layout::new(self, figure, Measure { stretch })?;
        let (width, height) = (figure.width * FINE, layout.height * FINE);
        let mut drawn = String::new();
        {
            let root = SVGBackend::with_string(&mut drawn, (width, height)).into_drawing_area();
            self.draw(&root, &layout)
                .map_err(|error| FigureError::Draw(error.to_string()))?;
        }
        if let Some(font) = &figure.font {
            let quoted = font.replace(['"', '\'', '<', '>', '&'], "");
            drawn = drawn.replace(FAMILY, &format!("{quoted}, {FAMILY}"));
        }
        let size = match figure.width_mm {
            Some(mm) => {
                let high = mm * f64::from(layout.height) / f64::from(figure.width);
                format!("width=\"{mm}mm\" height=\"{high:.2}mm\"")
            }
            None => format!("width=\"{}\" height=\"{}\"", figure.width, layout.height),
        };
        Ok(with_xml_characters(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n{drawn}</svg>\n",
            escape(&self.title),
        )))
    }

    fn draw(&self, root: &Area<'_>, layout: &Layout) -> Drawn {
        root.fill(&WHITE)?;
        let (head, rest) = root.split_vertically(layout.title_height * FINE);
        for (line, text) in layout.title.iter().enumerate() {
            let y = 10 + line as u32 * TITLE_LINE;
            let style = bold(TITLE_SIZE).color(&INK);
            head.draw_text(text, &style, (fine(MARGIN), fine(y)))?;
        }
        let (legend, mut rest) = rest.split_vertically(layout.legend_height * FINE);
        draw_legend(&legend, &layout.legend)?;
        for (row, rows_panels) in layout.rows.iter().zip(self.panels.chunks(layout.columns)) {
            let (area, below) = rest.split_vertically(row.height() * FINE);
            rest = below;
            let areas = area.split_evenly((1, layout.columns));
            for ((panel, frame), area) in rows_panels.iter().zip(&row.frames).zip(areas) {
                panel.draw(&area, frame)?;
            }
        }
        for (line, text) in layout.caption.iter().enumerate() {
            let y = 10 + line as u32 * CAPTION_LINE;
            let style = plain(CAPTION_SIZE).color(&MUTED);
            rest.draw_text(text, &style, (fine(MARGIN), fine(y)))?;
        }
        root.present()?;
        Ok(())
    }
}

/// Heights in CSS pixels, and the texts that are broken into lines.
struct Layout {
    title: Vec<String>,
    title_height: u32,
    legend: Vec<Entry>,
    legend_height: u32,
    rows: Vec<Row>,
    /// Number of charts in a row.
    columns: usize,
    caption: Vec<String>,
    height: u32,
}

/// A row of charts.
struct Row {
    frames: Vec<Frame>,
}

impl Row {
    /// Aligns the plots of a row.
    fn of(mut frames: Vec<Frame>) -> Row {
        let most = |of: fn(&Frame) -> u32| frames.iter().map(of).max().unwrap_or(0);
        let (above, plot, below) = (most(|f| f.above), most(|f| f.plot), most(|f| f.below));
        for frame in &mut frames {
            (frame.above, frame.plot, frame.below) = (above, plot, below);
        }
        Row { frames }
    }

    fn height(&self) -> u32 {
        self.frames.first().map_or(0, Frame::height)
    }

    fn plot(&self) -> u32 {
        self.frames.first().map_or(0, |frame| frame.plot)
    }
}

impl Layout {
    fn new(sheet: &Sheet, figure: &Figure, measure: Measure) -> Result<Self, FigureError> {
        let room = figure.width - 2 * MARGIN;
        let title = match figure.captioned {
            true => break_lines(&sheet.title, room, &|text| measure.bold(text, TITLE_SIZE)),
            false => Vec::new(),
        };
        let caption = match sheet.caption.is_empty() {
            true => Vec::new(),
            false => break_lines(&sheet.caption, room, &|text| {
                measure.plain(text, CAPTION_SIZE)
            }),
        };
        let title_height = match title.len() as u32 {
            0 => 6,
            lines => 14 + lines * TITLE_LINE,
        };
        let mut layout = Layout {
            title,
            title_height,
            legend: Vec::new(),
            legend_height: 0,
            rows: Vec::new(),
            columns: 1,
            caption,
            height: 0,
        };
        let (columns, left) = columns(sheet, figure, measure);
        layout.columns = columns;
        layout.rows = rows(sheet, figure, measure, (columns, left));
        let are_named = sheet.legend.is_of_columns
            && layout
                .rows
                .iter()
                .flat_map(|row| &row.frames)
                .all(Frame::has_names);
        if !are_named {
            layout.legend = place_legend(&sheet.legend, figure.width, left, measure);
            let last = layout.legend.last();
            layout.legend_height = last.map_or(0, |entry| (entry.row + 1) * LEGEND_ROW + 6);
        }
        layout.fit_height(figure)?;
        layout.height = layout.fixed_height() + layout.rows.iter().map(Row::plot).sum::<u32>();
        Ok(layout)
    }

    /// The height of all that does not grow with the charts.
    fn fixed_height(&self) -> u32 {
        let around = self.rows.iter().map(|row| row.height() - row.plot());
        let caption = match self.caption.len() as u32 {
            0 => 6,
            lines => lines * CAPTION_LINE + 16,
        };
        self.title_height + self.legend_height + caption + around.sum::<u32>()
    }

    /// Gives the charts the room that the requested height leaves.
    fn fit_height(&mut self, figure: &Figure) -> Result<(), FigureError> {
        let Some(height_mm) = figure.height_mm else {
            return Ok(());
        };
        let per_mm = match figure.width_mm {
            Some(width_mm) => f64::from(figure.width) / width_mm,
            None => super::CSS_PER_INCH / MM_PER_INCH,
        };
        let wanted = (height_mm * per_mm).round() as u32;
        let plots: u32 = self.rows.iter().map(Row::plot).sum();
        let lowest = self.rows.iter().map(Row::plot).min().unwrap_or(1).max(1);
        let fixed = self.fixed_height();
        let least = fixed + (plots * LOWEST_PLOT).div_ceil(lowest);
        if wanted < least {
            return Err(FigureError::Height {
                height_mm,
                least_mm: (f64::from(least) / per_mm).ceil(),
            });
        }
        // Cumulative rounding, so that the sum is exact.
        let (mut before, mut given) = (0, 0);
        for row in &mut self.rows {
            before += row.plot();
            let end = (u64::from(before) * u64::from(wanted - fixed) / u64::from(plots)) as u32;
            row.frames
                .iter_mut()
                .for_each(|frame| frame.plot = end - given);
            given = end;
        }
        Ok(())
    }
}

/// The number of charts in a row, and the room left of the plots for the numbers of the y axes.
fn columns(sheet: &Sheet, figure: &Figure, measure: Measure) -> (usize, u32) {
    let lefts = |most| {
        sheet
            .panels
            .iter()
            .map(move |panel| panel.left(most, measure))
    };
    let left = |columns: usize| {
        let most = figure.width / columns as u32 * 2 / 5;
        lefts(most).max().unwrap_or(0)
    };
    if sheet.is_over_time {
        return (1, left(1));
    }
    let panels = sheet.panels.len();
    let most = figure.columns.unwrap_or(MOST_BESIDE).min(panels).max(1);
    let fits = |columns: &usize| {
        let width = figure.width / *columns as u32;
        let needs = |panel: &Panel| panel.needed_width(left(*columns), measure);
        *columns == 1 || sheet.panels.iter().all(|panel| needs(panel) <= width)
    };
    let columns = match figure.columns {
        Some(_) => most,
        None => {
            let widest = (1..=most).rev().find(fits).unwrap_or(1);
            // As many rows, but equally full.
            panels.div_ceil(panels.div_ceil(widest))
        }
    };
    (columns, left(columns))
}

fn rows(
    sheet: &Sheet,
    figure: &Figure,
    measure: Measure,
    (columns, left): (usize, u32),
) -> Vec<Row> {
    let width = figure.width / columns as u32;
    let last = sheet.panels.len() - 1;
    let frame = |(at, panel): (usize, &Panel)| {
        let has_x_axis = !sheet.is_over_time || at == last;
        let is_in_legend = sheet.legend.is_of_columns;
        Frame::new(panel, (width, left), (has_x_axis, is_in_legend), measure)
    };
    let frames: Vec<Frame> = sheet.panels.iter().enumerate().map(frame).collect();
    let rows = frames.chunks(columns);
    rows.map(|row| Row::of(row.to_vec())).collect()
}

/// A line of a legend: a name, or a further line of one.
struct Entry {
    row: u32,
    x: u32,
    text: String,
    /// The colour and the look of the swatch before it.
    swatch: Option<(RGBColor, usize)>,
}

/// Places the entries from left to right, and those that find no room in further rows. A name that is
/// wider than the sheet is broken into lines.
fn place_legend(legend: &Legend, width: u32, left: u32, measure: Measure) -> Vec<Entry> {
    // On a narrow sheet, the legend starts at its edge.
    let start = if width < 500 { MARGIN } else { left };
    let wide = |text: &str| measure.plain(text, LEGEND_SIZE);
    let mut entries: Vec<Entry> = Vec::new();
    let (mut row, mut x) = (0, start);
    let heading = Some(&legend.heading).filter(|heading| !heading.is_empty());
    let heading = heading.map(|heading| (format!("{heading}:"), None));
    let names = legend
        .names
        .iter()
        .map(|(name, look)| (name.clone(), Some((color(*look), *look))));
    let patterns = legend
        .patterns
        .iter()
        .map(|(name, look)| (name.clone(), Some((MUTED, *look))));
    for (name, swatch) in heading.into_iter().chain(names).chain(patterns) {
        let indent = swatch.map_or(0, |_| SWATCH + 6);
        let needs = indent + wide(&name);
        if x > start && x + needs + MARGIN > width {
            (row, x) = (row + 1, start);
        }
        let room = width.saturating_sub(x + indent + MARGIN);
        let lines = break_lines(&name, room, &wide);
        let count = lines.len() as u32;
        for (line, text) in (0..).zip(lines) {
            entries.push(Entry {
                row: row + line,
                x: if line == 0 { x } else { x + indent },
                text,
                swatch: swatch.filter(|_| line == 0),
            });
        }
        x += needs + LEGEND_GAP;
        row += count - 1;
    }
    entries
}

fn draw_legend(area: &Area<'_>, entries: &[Entry]) -> Drawn {
    let style = plain(LEGEND_SIZE).color(&INK);
    for entry in entries {
        let middle = fine(entry.row * LEGEND_ROW + LEGEND_ROW / 2);
        let mut x = fine(entry.x);
        if let Some((tint, look)) = entry.swatch {
            let ends = [(x, middle), (x + fine(SWATCH), middle)];
            panel::stroke(area, &ends, tint, dash(look), 2.2)?;
            x += fine(SWATCH + 6);
        }
        area.draw_text(&entry.text, &style, (x, middle - fine(8)))?;
    }
    Ok(())
}

/// The least height of a plot in CSS pixels.
const LOWEST_PLOT: u32 = 48;
