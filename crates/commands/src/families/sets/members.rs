//! Members copied out of sets, side by side in one buffer.

use structures::Set;

/// Members of which none occurs twice, as long as none is added twice.
#[derive(Debug, Default)]
pub(super) struct Members {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Members {
    /// Those of a set.
    pub(super) fn of(set: &Set) -> Self {
        let mut members = Self::default();
        members.ends.reserve(set.len());
        for member in set.iter() {
            members.push(member.as_bytes());
        }
        members
    }

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

    /// Adds those of `others`.
    pub(super) fn append(&mut self, others: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&others.bytes);
        self.ends.extend(others.ends.iter().map(|end| start + end));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.bytes[start..*end])
    }

    /// Keeps those that `keeps` says, in their order.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&[u8]) -> bool) {
        let (mut start, mut kept_bytes, mut kept) = (0, 0, 0);
        for index in 0..self.ends.len() {
            let end = self.ends[index];
            if keeps(&self.bytes[start..end]) {
                self.bytes.copy_within(start..end, kept_bytes);
                kept_bytes += end - start;
                self.ends[kept] = kept_bytes;
                kept += 1;
            }
            start = end;
        }
        self.bytes.truncate(kept_bytes);
        self.ends.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_in_order() {
        let mut members = Members::default();
        for member in ["one", "", "three", "four", "five"] {
            members.push(member.as_bytes());
        }
        members.retain(|member| member.len() != 4);
        let left: Vec<&[u8]> = members.iter().collect();
        assert_eq!(left, [&b"one"[..], b"", b"three"]);
        members.retain(|_| false);
        assert!(members.is_empty());
        assert_eq!(members.iter().count(), members.len());
    }
}
