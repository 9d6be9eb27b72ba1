//! Figures as PNG, drawn by resvg with a font that ships with the program, so that they look the same
//! on a machine without fonts.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg;

/// Converts an SVG drawing to PNG.
///
/// # Errors
/// The message of resvg.
pub fn rasterize(drawn: &str, scale: f32) -> Result<Vec<u8>, String> {
    let options = options(None).map_err(|error| error.to_string())?;
    rasterize_with(drawn, scale, &options)
}

pub(crate) fn rasterize_with(
    drawn: &str,
    scale: f32,
    options: &usvg::Options<'_>,
) -> Result<Vec<u8>, String> {
    let tree = usvg::Tree::from_str(drawn, options).map_err(|error| error.to_string())?;
    let size = tree.size();
    let pixels = |length: f32| (length * scale).round() as u32;
    let mut picture = Pixmap::new(pixels(size.width()), pixels(size.height()))
        .ok_or_else(|| format!("scale {scale} gives an empty or a too large picture"))?;
    resvg::render(
        &tree,
        Transform::from_scale(scale, scale),
        &mut picture.as_mut(),
    );
    picture.encode_png().map_err(|error| error.to_string())
}

/// The requested font is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the font `{name}` is not installed on this machine{}", match known.as_slice() {
    [] => "; no fonts are".to_owned(),
    some => format!("; installed are {}", some.join(", ")),
})]
pub struct FontError {
    /// The font.
    pub name: String,
    /// Some fonts that are installed.
    pub known: Vec<String>,
}

/// The fonts that ship with the program and, if one is named, those of the machine.
pub(crate) fn options(font: Option<&str>) -> Result<usvg::Options<'static>, FontError> {
    let mut fonts = usvg::fontdb::Database::new();
    if let Some(name) = font {
        fonts.load_system_fonts();
        let mut known: Vec<String> = fonts
            .faces()
            .flat_map(|face| face.families.iter().map(|(family, _)| family.clone()))
            .collect();
        known.sort();
        known.dedup();
        if !known.iter().any(|family| family.eq_ignore_ascii_case(name)) {
            known.truncate(MOST_FONTS);
            return Err(FontError {
                name: name.to_owned(),
                known,
            });
        }
    }
    for bytes in [notosans::REGULAR_TTF, notosans::BOLD_TTF] {
        fonts.load_font_source(usvg::fontdb::Source::Binary(Arc::new(bytes)));
    }
    Ok(usvg::Options {
        fontdb: Arc::new(fonts),
        ..usvg::Options::default()
    })
}

/// Returns the ratio of the widths of the installed font `name` and of `usual`; 1 if it cannot be
/// measured.
pub(crate) fn width_ratio(name: &str, usual: &str) -> f64 {
    let Ok(options) = options(Some(name)) else {
        return 1.0;
    };
    let width = |family: &str| -> Option<f32> {
        let family = family.replace(['"', '\'', '<', '>', '&'], "");
        let drawn = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"2000\" height=\"100\"><text x=\"0\" \
             y=\"50\" font-size=\"20\" font-family=\"{family}\">{SAMPLE}</text></svg>"
        );
        let tree = usvg::Tree::from_str(&drawn, &options).ok()?;
        Some(tree.root().abs_bounding_box().width())
    };
    match (width(name), width(usual)) {
        (Some(own), Some(usual)) if own > 0.0 && usual > 0.0 => f64::from(own / usual),
        _ => 1.0,
    }
}

/// A text with the letters of a caption.
const SAMPLE: &str =
    "Goodput: averaged over the last 1 s every 0.25 s, counting payload; 0123456789";

/// Number of installed fonts that a message names.
const MOST_FONTS: usize = 10;
