//! A drawing: title, legend, charts and caption on one sheet.

use plotters::prelude::*;

use super::panel::{self, Panel};
use super::{
    Area, CAPTION_LINE, CAPTION_SIZE, DISTRIBUTION_HEIGHT, Drawn, FAMILY, FINE, Figure,
    FigureError, INK, LEFT, LEGEND_GAP, LEGEND_ROW, LEGEND_SIZE, MARGIN, MOST_BESIDE, MUTED,
    SWATCH, X_AXIS, bold, color, dash, escape, fine, plain, register_fonts, text_width,
};
use crate::raster::width_ratio;

/// The parts of a drawing.
pub struct Sheet {
    pub title: String,
    /// Names, each with its look.
    pub legend: Vec<(String, usize)>,
    pub panels: Vec<Panel>,
    /// The caption; empty for none.
    pub caption: String,
    /// Whether the charts are stacked on one time axis; otherwise they are side by side.
    pub is_over_time: bool,
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
        let layout = Layout::new(self, figure, stretch);
        let (width, height) = (figure.width * FINE, layout.height * FINE);
        let mut drawn = String::new();
        {
            let root = SVGBackend::with_string(&mut drawn, (width, height)).into_drawing_area();
            self.draw(&root, figure, &layout)
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
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n{drawn}</svg>\n",
            escape(&self.title),
        ))
    }

    fn draw(&self, root: &Area<'_>, figure: &Figure, layout: &Layout) -> Drawn {
        root.fill(&WHITE)?;
        let (head, rest) = root.split_vertically(layout.title * FINE);
        if figure.captioned {
            let style = bold(17.0).color(&INK);
            head.draw_text(&self.title, &style, (fine(MARGIN), fine(10)))?;
        }
        let (legend, mut rest) = rest.split_vertically(layout.legend * FINE);
        let stretch = layout.stretch;
        draw_legend(&legend, &self.legend, &layout.legend_rows, stretch)?;
        if self.is_over_time {
            for (at, (panel, height)) in self.panels.iter().zip(&layout.panels).enumerate() {
                let (area, below) = rest.split_vertically(height * FINE);
                rest = below;
                panel.draw(&area, at + 1 == self.panels.len(), stretch)?;
            }
        } else {
            for (row, height) in self.panels.chunks(layout.columns).zip(&layout.panels) {
                let (area, below) = rest.split_vertically(height * FINE);
                rest = below;
                for (panel, area) in row.iter().zip(area.split_evenly((1, layout.columns))) {
                    panel.draw(&area, true, stretch)?;
                }
            }
        }
        for (line, text) in layout.caption.iter().enumerate() {
            let y = 10 + line as u32 * CAPTION_LINE;
            rest.draw_text(
                text,
                &plain(CAPTION_SIZE).color(&MUTED),
                (fine(MARGIN), fine(y)),
            )?;
        }
        root.present()?;
        Ok(())
    }
}

/// Heights in CSS pixels, and the texts that are broken into lines.
struct Layout {
    title: u32,
    legend: u32,
    legend_rows: Vec<Vec<usize>>,
    panels: Vec<u32>,
    /// Number of charts in a row, if they are side by side.
    columns: usize,
    caption: Vec<String>,
    height: u32,
    /// The factor by which the figure's own font is wider than the font in which texts are
    /// measured.
    stretch: f64,
}

impl Layout {
    fn new(sheet: &Sheet, figure: &Figure, stretch: f64) -> Self {
        let legend_rows = break_legend(&sheet.legend, figure.width, stretch);
        let caption_width = (f64::from(figure.width - 2 * MARGIN) / stretch) as u32;
        let caption = match sheet.caption.is_empty() {
            true => Vec::new(),
            false => break_lines(&sheet.caption, caption_width, CAPTION_SIZE),
        };
        let panels = &sheet.panels;
        // On a narrow sheet, charts are placed below one another, so that they do not become too
        // narrow.
        let most = (figure.width / NARROWEST).clamp(1, MOST_BESIDE as u32) as usize;
        let rows = panels.len().div_ceil(most);
        let heights: Vec<u32> = if sheet.is_over_time {
            let last = panels.len() - 1;
            let panels = panels.iter().enumerate();
            panels
                .map(|(at, panel)| panel.height + if at == last { X_AXIS } else { 0 })
                .collect()
        } else {
            vec![DISTRIBUTION_HEIGHT + X_AXIS; rows]
        };
        let title = if figure.captioned { 34 } else { 6 };
        let legend = match sheet.legend.is_empty() {
            true => 0,
            false => legend_rows.len() as u32 * LEGEND_ROW + 6,
        };
        let caption_height = match caption.len() as u32 {
            0 => 6,
            lines => lines * CAPTION_LINE + 16,
        };
        Layout {
            title,
            legend,
            legend_rows,
            height: title + legend + heights.iter().sum::<u32>() + caption_height,
            panels: heights,
            columns: panels.len().div_ceil(rows.max(1)),
            caption,
            stretch,
        }
    }
}

/// The width of a legend's entry without the swatch.
fn entry_width(name: &str, stretch: f64) -> u32 {
    (f64::from(text_width(name, LEGEND_SIZE)) * stretch).ceil() as u32
}

/// The smallest width of a chart beside others, in CSS pixels.
const NARROWEST: u32 = 190;

/// Draws the entries from left to right, in the rows that `break_legend` returned.
fn draw_legend(
    area: &Area<'_>,
    names: &[(String, usize)],
    rows: &[Vec<usize>],
    stretch: f64,
) -> Drawn {
    let style = plain(LEGEND_SIZE).color(&INK);
    for (row, variants) in rows.iter().enumerate() {
        let middle = fine(row as u32 * LEGEND_ROW + LEGEND_ROW / 2);
        let mut x = fine(LEFT);
        for &variant in variants {
            let (name, look) = &names[variant];
            panel::stroke(
                area,
                &[(x, middle), (x + fine(SWATCH), middle)],
                color(*look),
                dash(*look),
                2.2,
            )?;
            let at = (x + fine(SWATCH + 6), middle - fine(8));
            area.draw_text(name, &style, at)?;
            x += fine(SWATCH + 6 + entry_width(name, stretch) + LEGEND_GAP);
        }
    }
    Ok(())
}

fn break_legend(names: &[(String, usize)], width: u32, stretch: f64) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = vec![Vec::new()];
    let mut used = LEFT;
    for (variant, (name, _)) in names.iter().enumerate() {
        let needs = SWATCH + 6 + entry_width(name, stretch) + LEGEND_GAP;
        if used + needs > width && rows.last().is_some_and(|row| !row.is_empty()) {
            rows.push(Vec::new());
            used = LEFT;
        }
        used += needs;
        rows.last_mut()
            .expect("there is always a row")
            .push(variant);
    }
    rows
}

fn break_lines(text: &str, width: u32, size: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        let longer = if line.is_empty() {
            word.to_owned()
        } else {
            format!("{line} {word}")
        };
        if line.is_empty() || text_width(&longer, size) <= width {
            *line = longer;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
