//! Members copied out of sets into one buffer.

/// Distinct members, provided that none is added twice.
#[derive(Debug, Default)]
pub(super) struct Members {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn push(&mut self, member: &[u8]) {
        self.bytes.extend_from_slice(member);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.bytes[start..*end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_stay_in_order() {
        let mut members = Members::default();
        assert!(members.is_empty());
        for member in ["one", "", "three"] {
            members.push(member.as_bytes());
        }
        let all: Vec<&[u8]> = members.iter().collect();
        assert_eq!(all, [&b"one"[..], b"", b"three"]);
        assert_eq!(members.len(), 3);
    }
}
