//! Pictures as PDF: the paths and texts of an SVG drawing, with the used glyphs of its fonts, so that
//! it looks the same everywhere.
//!
//! usvg reads the drawing and resolves fonts and styles; pdf-writer writes the file. Only what the
//! figures consist of is converted: paths and text with plain colours, opacities and dashes. Text in
//! fonts without TrueType outlines is drawn as paths.

mod glyphs;

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use pdf_writer::types::{LineCapStyle, LineJoinStyle};
use pdf_writer::{Content, Filter, Finish as _, Name, Pdf, Rect, Ref};
use resvg::usvg::tiny_skia_path::PathSegment;
use resvg::usvg::{self, FillRule, Group, LineCap, LineJoin, Node, Paint, Path, Text, Transform};

use self::glyphs::Fonts;

/// Converts an SVG drawing to PDF.
///
/// # Errors
/// The message of usvg.
pub fn pdf(drawn: &str, options: &usvg::Options<'_>) -> Result<Vec<u8>, String> {
    let tree = usvg::Tree::from_str(drawn, options).map_err(|error| error.to_string())?;
    let size = tree.size();
    // A CSS pixel is 3/4 of a point, and PDF counts from the bottom.
    let page = Transform::from_row(POINTS, 0.0, 0.0, -POINTS, 0.0, size.height() * POINTS);
    let mut sheet = Sheet {
        content: Content::new(),
        opacities: BTreeMap::new(),
        fonts: Fonts::new(tree.fontdb()),
    };
    sheet.group(tree.root(), page, 1.0);

    let (catalog, pages, only, content) = (Ref::new(1), Ref::new(2), Ref::new(3), Ref::new(4));
    let mut pdf = Pdf::new();
    // The first version with opacities: pdfTeX warns of pictures that are newer than 1.5.
    pdf.set_version(1, 4);
    pdf.catalog(catalog).pages(pages);
    pdf.pages(pages).kids([only]).count(1);
    let mut leaf = pdf.page(only);
    leaf.media_box(Rect::new(
        0.0,
        0.0,
        size.width() * POINTS,
        size.height() * POINTS,
    ));
    leaf.parent(pages);
    leaf.contents(content);
    let mut resources = leaf.resources();
    let mut states = resources.ext_g_states();
    for (number, name) in sheet.opacities.values() {
        states.pair(Name(name.as_bytes()), Ref::new(FIRST_STATE + number));
    }
    states.finish();
    let first_font = FIRST_STATE + sheet.opacities.len() as i32;
    sheet.fonts.list(&mut resources, first_font);
    resources.finish();
    leaf.finish();
    for ((fill, stroke), (number, _)) in &sheet.opacities {
        let mut state = pdf.ext_graphics(Ref::new(FIRST_STATE + number));
        state.non_stroking_alpha(f32::from(*fill) / OPAQUE);
        state.stroking_alpha(f32::from(*stroke) / OPAQUE);
    }
    sheet.fonts.embed(&mut pdf, first_font)?;
    let packed = packed(&sheet.content.finish());
    pdf.stream(content, &packed).filter(Filter::FlateDecode);
    Ok(pdf.finish())
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed
        .write_all(bytes)
        .and_then(|()| packed.finish())
        .expect("writing into memory does not fail")
}

const POINTS: f32 = 0.75;
const OPAQUE: f32 = 255.0;
const FIRST_STATE: i32 = 5;

struct Sheet<'a> {
    content: Content,
    fonts: Fonts<'a>,
    /// The opacities of fill and stroke that occur, of 255, with their number and name.
    opacities: BTreeMap<(u8, u8), (i32, String)>,
}

impl Sheet<'_> {
    /// Draws the content of a group. The group's opacity applies to each of its parts, because
    /// parts do not overlap in figures.
    fn group(&mut self, group: &Group, page: Transform, opacity: f32) {
        let opacity = opacity * group.opacity().get();
        for node in group.children() {
            match node {
                Node::Group(inner) => self.group(inner, page, opacity),
                Node::Path(path) => self.path(path, page, opacity),
                Node::Text(text) if self.fonts.can_write(text) => self.text(text, page, opacity),
                Node::Text(text) => self.group(text.flattened(), page, opacity),
                // Figures contain no pictures.
                Node::Image(_) => {}
            }
        }
    }

    /// Writes a text, whose parts have one colour in figures.
    fn text(&mut self, text: &Text, page: Transform, of_group: f32) {
        let fill = text.layouted().iter().find_map(|span| span.fill.as_ref());
        let Some((fill, [r, g, b])) = fill.and_then(|fill| Some((fill, rgb(fill.paint())?))) else {
            return;
        };
        let opacity = (fill.opacity().get() * of_group * OPAQUE).round() as u8;
        let name = self.opacity((opacity, OPAQUE as u8));
        self.content.save_state();
        self.content.set_parameters(Name(name.as_bytes()));
        self.content.set_fill_rgb(r, g, b);
        self.fonts.write(&mut self.content, text, page);
        self.content.restore_state();
    }

    /// The name of the opacities of fill and stroke, of 255.
    fn opacity(&mut self, key: (u8, u8)) -> String {
        let next = self.opacities.len() as i32;
        let entry = self.opacities.entry(key);
        let (_, name) = entry.or_insert_with(|| (next, format!("G{next}")));
        name.clone()
    }

    fn path(&mut self, path: &Path, page: Transform, of_group: f32) {
        if !path.is_visible() {
            return;
        }
        let place = page.pre_concat(path.abs_transform());
        let fill = path
            .fill()
            .and_then(|fill| Some((fill, rgb(fill.paint())?)));
        let stroke = path
            .stroke()
            .and_then(|stroke| Some((stroke, rgb(stroke.paint())?)));
        if fill.is_none() && stroke.is_none() {
            return;
        }
        let share = |own: Option<f32>| (own.unwrap_or(1.0) * of_group * OPAQUE).round() as u8;
        let key = (
            share(fill.map(|(fill, _)| fill.opacity().get())),
            share(stroke.map(|(stroke, _)| stroke.opacity().get())),
        );
        let name = self.opacity(key);
        let content = &mut self.content;
        content.save_state();
        content.set_parameters(Name(name.as_bytes()));
        content.transform([place.sx, place.ky, place.kx, place.sy, place.tx, place.ty]);
        if let Some((_, [r, g, b])) = fill {
            content.set_fill_rgb(r, g, b);
        }
        if let Some((stroke, [r, g, b])) = stroke {
            content.set_stroke_rgb(r, g, b);
            content.set_line_width(stroke.width().get());
            content.set_line_cap(match stroke.linecap() {
                LineCap::Butt => LineCapStyle::ButtCap,
                LineCap::Round => LineCapStyle::RoundCap,
                LineCap::Square => LineCapStyle::ProjectingSquareCap,
            });
            content.set_line_join(match stroke.linejoin() {
                LineJoin::Miter | LineJoin::MiterClip => LineJoinStyle::MiterJoin,
                LineJoin::Round => LineJoinStyle::RoundJoin,
                LineJoin::Bevel => LineJoinStyle::BevelJoin,
            });
            if let Some(dashes) = stroke.dasharray() {
                content.set_dash_pattern(dashes.iter().copied(), stroke.dashoffset());
            }
        }
        draw(content, path);
        match (fill, stroke.is_some()) {
            (Some((fill, _)), false) if fill.rule() == FillRule::EvenOdd => content.fill_even_odd(),
            (Some(_), false) => content.fill_nonzero(),
            (Some((fill, _)), true) if fill.rule() == FillRule::EvenOdd => {
                content.fill_even_odd_and_stroke()
            }
            (Some(_), true) => content.fill_nonzero_and_stroke(),
            (None, _) => content.stroke(),
        };
        content.restore_state();
    }
}

fn rgb(paint: &Paint) -> Option<[f32; 3]> {
    match paint {
        Paint::Color(colour) => {
            let part = |value: u8| f32::from(value) / 255.0;
            Some([part(colour.red), part(colour.green), part(colour.blue)])
        }
        // Figures contain neither gradients nor patterns.
        _ => None,
    }
}

/// Writes the segments of a path. PDF has no quadratic curves.
fn draw(content: &mut Content, path: &Path) {
    let mut at = (0.0, 0.0);
    for segment in path.data().segments() {
        match segment {
            PathSegment::MoveTo(p) => {
                content.move_to(p.x, p.y);
                at = (p.x, p.y);
            }
            PathSegment::LineTo(p) => {
                content.line_to(p.x, p.y);
                at = (p.x, p.y);
            }
            PathSegment::QuadTo(c, p) => {
                let third = |from: f32, to: f32| from + (to - from) * 2.0 / 3.0;
                content.cubic_to(
                    third(at.0, c.x),
                    third(at.1, c.y),
                    third(p.x, c.x),
                    third(p.y, c.y),
                    p.x,
                    p.y,
                );
                at = (p.x, p.y);
            }
            PathSegment::CubicTo(a, b, p) => {
                content.cubic_to(a.x, a.y, b.x, b.y, p.x, p.y);
                at = (p.x, p.y);
            }
            PathSegment::Close => {
                content.close_path();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::ZlibDecoder;

    use super::*;

    /// The operators that draw the page: the last stream of the file.
    fn operators(bytes: &[u8]) -> String {
        let start = b"stream\n";
        let places = bytes.windows(start.len()).rposition(|part| part == start);
        // "endstream" has the word, too; the last one begins behind it.
        let end = places.expect("a stream") - 1;
        let from = bytes[..end]
            .windows(start.len())
            .rposition(|part| part == start);
        let mut text = String::new();
        let stream = &bytes[from.expect("a stream") + start.len()..];
        ZlibDecoder::new(stream)
            .read_to_string(&mut text)
            .expect("a stream of operators");
        text
    }

    #[test]
    fn a_pale_shape_keeps_its_opacity_and_a_length_its_size() {
        let drawn = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"96\" height=\"48\">\
             <rect width=\"10\" height=\"10\" opacity=\"0.2\" fill=\"#ff0000\"/></svg>";
        let bytes = pdf(drawn, &usvg::Options::default()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        // An inch wide: 72 points. 0.2 of 255 is 51.
        assert!(text.contains("/MediaBox [0 0 72 36]"), "{text}");
        assert!(bytes.starts_with(b"%PDF-1.4"));
        assert!(text.contains("/ca 0.2"), "{text}");
        assert!(operators(&bytes).contains("1 0 0 rg"));
    }

    #[test]
    fn text_has_its_characters_and_the_font_only_its_glyphs() {
        let written = |text: &str| {
            let drawn = format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"96\" height=\"48\"><text x=\"10\" \
                 y=\"20\" font-family=\"Noto Sans\" font-size=\"12\">{text}</text></svg>"
            );
            let options = crate::raster::options(None).expect("the program's own font");
            pdf(&drawn, &options).unwrap()
        };
        let bytes = written("AB");
        let text = String::from_utf8_lossy(&bytes);
        // The map to Unicode has both letters, U+0041 and U+0042.
        assert!(
            text.contains("<0041>") && text.contains("<0042>"),
            "no map to Unicode"
        );
        // A glyph each, and no outline.
        assert_eq!(operators(&bytes).matches(" Tj").count(), 2);
        assert!(!operators(&bytes).contains(" c\n"));
        // The whole font has half a million bytes.
        assert!(bytes.len() < 30_000, "{}", bytes.len());

        // Subsets of other glyphs have other names, so that programs that merge files keep both.
        let name = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let from = text.find("/BaseFont /").expect("a font") + "/BaseFont /".len();
            text[from..].split_whitespace().next().map(str::to_owned)
        };
        assert!(name(&bytes).is_some_and(|name| name.ends_with("+NotoSans")));
        assert_eq!(name(&bytes), name(&written("AB")));
        assert_ne!(name(&bytes), name(&written("AC")));
    }
}
