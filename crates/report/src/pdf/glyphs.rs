//! Text in PDF: the fonts with the used glyphs alone, and the glyphs with their characters, so that
//! the text of a picture can be searched, copied and edited.

use std::collections::BTreeMap;

use pdf_writer::types::{CidFontType, FontFlags, SystemInfo, UnicodeCmap};
use pdf_writer::writers::Resources;
use pdf_writer::{Content, Filter, Finish as _, Name, Pdf, Rect, Ref, Str};
use resvg::usvg::fontdb::{Database, ID};
use resvg::usvg::{Text, Transform};
use subsetter::GlyphRemapper;
use ttf_parser::Face;

/// The fonts of a picture, with their used glyphs.
pub struct Fonts<'a> {
    known: &'a Database,
    used: BTreeMap<ID, Used>,
}

/// A font and its used glyphs.
struct Used {
    name: String,
    glyphs: GlyphRemapper,
    /// By their new numbers: width in thousandths of an em, and characters.
    written: BTreeMap<u16, (f32, String)>,
    units_per_em: f32,
}

impl<'a> Fonts<'a> {
    /// No font is used yet.
    pub fn new(known: &'a Database) -> Self {
        Fonts {
            known,
            used: BTreeMap::new(),
        }
    }

    /// Whether all glyphs of a text can be written as text: those of TrueType outlines.
    pub fn can_write(&self, text: &Text) -> bool {
        let glyphs = text
            .layouted()
            .iter()
            .flat_map(|span| &span.positioned_glyphs);
        let mut fonts = glyphs.map(|glyph| glyph.font);
        fonts.all(|font| self.used.contains_key(&font) || self.is_true_type(font))
    }

    fn is_true_type(&self, font: ID) -> bool {
        let read = |data: &[u8], index: u32| {
            let face = Face::parse(data, index).ok();
            face.is_some_and(|face| face.tables().glyf.is_some() && !face.is_variable())
        };
        self.known.with_face_data(font, read).unwrap_or(false)
    }

    /// Writes the glyphs of a text that lies at `page`.
    pub fn write(&mut self, content: &mut Content, text: &Text, page: Transform) {
        let place = page.pre_concat(text.abs_transform());
        content.begin_text();
        for glyph in text
            .layouted()
            .iter()
            .flat_map(|span| &span.positioned_glyphs)
        {
            let Some((name, number, em)) = self.glyph(glyph.font, glyph.id.0 as u16, &glyph.text)
            else {
                continue;
            };
            let at = place.pre_concat(glyph.outline_transform());
            content.set_font(Name(name.as_bytes()), 1.0);
            content.set_text_matrix([at.sx * em, at.ky * em, at.kx * em, at.sy * em, at.tx, at.ty]);
            content.show(Str(&number.to_be_bytes()));
        }
        content.end_text();
    }

    /// The name of the font, the number of a glyph in it, and the units of an em.
    fn glyph(&mut self, font: ID, glyph: u16, text: &str) -> Option<(String, u16, f32)> {
        let next = self.used.len();
        let known = self.known;
        known.with_face_data(font, |data, index| {
            let face = Face::parse(data, index).ok()?;
            let used = self.used.entry(font).or_insert_with(|| Used {
                name: format!("F{next}"),
                glyphs: GlyphRemapper::new(),
                written: BTreeMap::new(),
                units_per_em: f32::from(face.units_per_em()),
            });
            let number = used.glyphs.remap(glyph);
            let width = face
                .glyph_hor_advance(ttf_parser::GlyphId(glyph))
                .unwrap_or(0);
            let width = f32::from(width) * 1000.0 / used.units_per_em;
            used.written.insert(number, (width, text.to_owned()));
            Some((used.name.clone(), number, used.units_per_em))
        })?
    }

    /// Adds the fonts to the resources of the page. Their objects begin at `first`.
    pub fn list(&self, resources: &mut Resources<'_>, first: i32) {
        let mut fonts = resources.fonts();
        for (at, used) in self.used.values().enumerate() {
            fonts.pair(Name(used.name.as_bytes()), font_refs(first, at)[0]);
        }
        fonts.finish();
    }

    /// Writes the fonts.
    ///
    /// # Errors
    /// A font cannot be reduced to its used glyphs.
    pub fn embed(&self, pdf: &mut Pdf, first: i32) -> Result<(), String> {
        for (at, (font, used)) in self.used.iter().enumerate() {
            let embedded = self.known.with_face_data(*font, |data, index| {
                used.embed(pdf, font_refs(first, at), (data, index))
            });
            embedded.ok_or("a font is no longer there")??;
        }
        Ok(())
    }
}

impl Used {
    /// The six letters before the name of a subset. Programs that merge PDF files take fonts of one
    /// name for the same, so the letters follow from the glyphs.
    fn prefix(&self) -> String {
        let glyphs = self.written.values().flat_map(|(_, text)| text.bytes());
        // FNV-1a
        let mut hash = glyphs.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let mut letters = String::new();
        for _ in 0..6 {
            letters.push(char::from(b'A' + (hash % 26) as u8));
            hash /= 26;
        }
        letters
    }

    fn embed(
        &self,
        pdf: &mut Pdf,
        [font, cid, descriptor, file, cmap]: [Ref; 5],
        (data, index): (&[u8], u32),
    ) -> Result<(), String> {
        let face = Face::parse(data, index).map_err(|error| error.to_string())?;
        let subset = subsetter::subset(data, index, &self.glyphs);
        let subset = subset.map_err(|error| error.to_string())?;
        let own = face.names().into_iter().find(|name| name.name_id == 6);
        let own = own
            .and_then(|name| name.to_string())
            .unwrap_or_else(|| "Font".to_owned());
        let name = format!("{}+{}", self.prefix(), own.replace(' ', ""));
        let name = Name(name.as_bytes());
        let system = SystemInfo {
            registry: Str(b"Adobe"),
            ordering: Str(b"Identity"),
            supplement: 0,
        };

        pdf.type0_font(font)
            .base_font(name)
            .encoding_predefined(Name(b"Identity-H"))
            .descendant_font(cid)
            .to_unicode(cmap);

        let mut written = pdf.cid_font(cid);
        written
            .subtype(CidFontType::Type2)
            .base_font(name)
            .system_info(system)
            .font_descriptor(descriptor)
            .default_width(0.0)
            .cid_to_gid_map_predefined(Name(b"Identity"));
        let mut widths = written.widths();
        for (number, (width, _)) in &self.written {
            widths.consecutive(*number, [*width]);
        }
        widths.finish();
        written.finish();

        let shown = |units: i16| f32::from(units) * 1000.0 / self.units_per_em;
        let bounds = face.global_bounding_box();
        pdf.font_descriptor(descriptor)
            .name(name)
            .flags(FontFlags::SYMBOLIC)
            .bbox(Rect::new(
                shown(bounds.x_min),
                shown(bounds.y_min),
                shown(bounds.x_max),
                shown(bounds.y_max),
            ))
            .italic_angle(face.italic_angle())
            .ascent(shown(face.ascender()))
            .descent(shown(face.descender()))
            .cap_height(shown(face.capital_height().unwrap_or(face.ascender())))
            .stem_v(STEM)
            .font_file2(file);

        let mut characters = UnicodeCmap::new(Name(b"Characters"), system);
        for (number, (_, text)) in &self.written {
            characters.pair_with_multiple(*number, text.chars());
        }
        pdf.cmap(cmap, &characters.finish());

        let packed = super::packed(&subset);
        let length = i32::try_from(subset.len()).map_err(|error| error.to_string())?;
        let mut stream = pdf.stream(file, &packed);
        stream.filter(Filter::FlateDecode);
        stream.pair(Name(b"Length1"), length);
        Ok(())
    }
}

/// The objects of a font: the font, its glyphs, its measures, its file and its characters.
fn font_refs(first: i32, at: usize) -> [Ref; 5] {
    let first = first + 5 * at as i32;
    [0, 1, 2, 3, 4].map(|part| Ref::new(first + part))
}

/// The usual width of a stem, in thousandths of an em. Only viewers that replace the font use it.
const STEM: f32 = 80.0;
