//! Templates of hashes: the names of fields that many hashes share, since Redis 8.10.
//!
//! ```text
//!   in a file     242 │ number │ count │ name …         before the hashes that name the number
//!   in a payload  0 │ listpack: name …                  short names
//!                 1 │ count │ name …
//!
//!   30            listpack: number, value …             a hash of a file, by a template of it
//!   32            number │ value …
//! ```
//!
//! A hash of a file is expanded here, to type 4, so that no code behind the file's reader meets a
//! template.

use std::collections::HashMap;

use structures::Element;

use crate::code;
use crate::listpack;
use crate::reader::{Malformed, Reader};
use crate::writer::write_length;

/// Encodings of names in a payload.
mod form {
    pub(super) const LISTPACK: u64 = 0;
    pub(super) const TEXTS: u64 = 1;
}

/// Names of fields.
type Names = Vec<Vec<u8>>;

/// Reads the names of a template in a payload.
pub(crate) fn read_names(reader: &mut Reader<'_>) -> Result<Names, Malformed> {
    match reader.length()? {
        form::LISTPACK => {
            let text = reader.text()?;
            let names = listpack::open(text.as_bytes())?;
            let names: Names = names.map(|name| name.text().as_bytes().to_vec()).collect();
            match names.is_empty() {
                true => Err(Malformed::Empty),
                false => Ok(names),
            }
        }
        form::TEXTS => read_texts(reader),
        _ => Err(Malformed::Length),
    }
}

fn read_texts(reader: &mut Reader<'_>) -> Result<Names, Malformed> {
    let count = reader.collection(1)?;
    (0..count)
        .map(|_| Ok(reader.text()?.into_vec()))
        .collect::<Result<_, _>>()
}

/// The templates of a file. Their memory is proportional to their bytes in the file.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    by_number: HashMap<u64, Names>,
}

impl Templates {
    /// Adds a template from what follows code 242.
    pub(crate) fn add(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let number = reader.length()?;
        let names = read_texts(reader)?;
        match self.by_number.insert(number, names) {
            None => Ok(()),
            Some(_) => Err(Malformed::Twice),
        }
    }

    /// Returns the number of fields of a template.
    pub(crate) fn fields(&self, number: u64) -> Option<usize> {
        self.by_number.get(&number).map(Vec::len)
    }

    /// Writes a hash with a template, given by its type and body, as one of type 4.
    pub(crate) fn expand(
        &self,
        type_code: u8,
        reader: &mut Reader<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        out.clear();
        if type_code == code::HASH_OF_TEMPLATE {
            let names = self.names(reader.length()?)?;
            write_length(names.len(), out);
            for name in names {
                write_raw(name, out);
                write_raw(reader.text()?.as_bytes(), out);
            }
        } else {
            let text = reader.text()?;
            let mut values = listpack::open(text.as_bytes())?;
            let number = match values.next() {
                Some(Element::Integer(number)) => u64::try_from(number),
                _ => return Err(Malformed::Block),
            };
            let names = self.names(number.map_err(|_| Malformed::Number)?)?;
            if names.len() != values.len() {
                return Err(Malformed::Block);
            }
            write_length(names.len(), out);
            for (name, value) in names.iter().zip(values) {
                write_raw(name, out);
                write_raw(value.text().as_bytes(), out);
            }
        }
        if reader.rest().is_empty() {
            Ok(())
        } else {
            Err(Malformed::Behind)
        }
    }

    fn names(&self, number: u64) -> Result<&Names, Malformed> {
        self.by_number.get(&number).ok_or(Malformed::Template)
    }
}

/// Whether values of this type refer to a template of their file.
pub(crate) fn is_by_template(type_code: u8) -> bool {
    matches!(
        type_code,
        code::HASH_OF_TEMPLATE | code::HASH_OF_TEMPLATE_LISTPACK
    )
}

/// Writes a text without compression: it is read again at once.
fn write_raw(text: &[u8], out: &mut Vec<u8>) {
    write_length(text.len(), out);
    out.extend_from_slice(text);
}
