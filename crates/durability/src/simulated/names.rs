//! Names and directories: those that are visible, those that are durable, and the changes in
//! between.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use base::random::Prng;
use rustix::io::Errno;

/// What a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(usize),
    Directory,
}

type Map = BTreeMap<PathBuf, Entry>;

/// The names of a device. The root and the current directory always exist.
#[derive(Default)]
pub(super) struct Names {
    live: Map,
    durable: Map,
    /// In chronological order.
    pending: Vec<NameChange>,
}

/// One change, which survives or does not.
#[derive(Clone, Debug)]
enum NameChange {
    Set(PathBuf, Entry),
    Move {
        from: PathBuf,
        to: PathBuf,
        file: usize,
    },
    Unset(PathBuf),
}

impl NameChange {
    /// Returns the name whose directory makes this durable.
    fn name(&self) -> &Path {
        match self {
            Self::Set(path, _) | Self::Unset(path) => path,
            Self::Move { to, .. } => to,
        }
    }

    fn names(&self) -> impl Iterator<Item = &PathBuf> {
        let (name, other) = match self {
            Self::Set(path, _) | Self::Unset(path) => (path, None),
            Self::Move { from, to, .. } => (to, Some(from)),
        };
        [Some(name), other].into_iter().flatten()
    }

    /// Whether later changes of these names depend on this one.
    fn precedes(&self, later: &BTreeSet<&PathBuf>) -> bool {
        let is_of_old_directory = |name: &&PathBuf| match self {
            Self::Unset(path) => name.starts_with(path),
            _ => false,
        };
        self.names().any(|name| later.contains(name)) || later.iter().any(is_of_old_directory)
    }

    fn apply(&self, map: &mut Map) {
        match self {
            Self::Set(path, entry) => {
                map.insert(path.clone(), *entry);
            }
            Self::Unset(path) => {
                // A directory is removed with the entries that may still be in it, so that they do
                // not come back with another directory of that name.
                if map.remove(path) == Some(Entry::Directory) {
                    map.retain(|name, _| !name.starts_with(path));
                }
            }
            Self::Move { from, to, file } => {
                map.remove(from);
                map.insert(to.clone(), Entry::File(*file));
            }
        }
    }
}

impl Names {
    /// Returns the number of a file.
    pub(super) fn file(&self, path: &Path) -> io::Result<usize> {
        match self.live.get(path) {
            Some(Entry::File(file)) => Ok(*file),
            Some(Entry::Directory) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// Returns the numbers of all files that have a name.
    pub(super) fn files(&self) -> impl Iterator<Item = usize> {
        self.live
            .values()
            .filter_map(|entry| super::is_file(*entry))
    }

    pub(super) fn find_directory(&self, path: &Path) -> io::Result<()> {
        match self.live.get(path) {
            _ if is_root(path) => Ok(()),
            Some(Entry::Directory) => Ok(()),
            Some(Entry::File(_)) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    pub(super) fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.find_directory(directory)?;
        Ok(self.inside(directory).collect())
    }

    fn inside(&self, directory: &Path) -> impl Iterator<Item = String> {
        let names = self.live.keys();
        let names = names.filter(move |path| path.parent() == Some(directory));
        names.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
    }

    pub(super) fn create(&mut self, path: &Path, file: usize) -> io::Result<()> {
        self.find_directory(parent(path))?;
        if self.live.contains_key(path) {
            return Err(Errno::EXIST.into());
        }
        self.changes(NameChange::Set(path.to_path_buf(), Entry::File(file)));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.file(from)?;
        self.find_directory(parent(to))?;
        if self.live.get(to) == Some(&Entry::Directory) {
            return Err(Errno::ISDIR.into());
        }
        if from != to {
            let (from, to) = (from.to_path_buf(), to.to_path_buf());
            self.changes(NameChange::Move { from, to, file });
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        self.changes(NameChange::Unset(path.to_path_buf()));
        Ok(())
    }

    pub(super) fn create_directory(&mut self, path: &Path) -> io::Result<()> {
        let above: Vec<&Path> = path.ancestors().collect();
        for directory in above.into_iter().rev() {
            match self.find_directory(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.changes(NameChange::Set(directory.to_path_buf(), Entry::Directory));
                }
                found => found?,
            }
        }
        Ok(())
    }

    pub(super) fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        self.find_directory(path)?;
        if self.inside(path).next().is_some() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.changes(NameChange::Unset(path.to_path_buf()));
        Ok(())
    }

    fn changes(&mut self, change: NameChange) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    pub(super) fn settle(&mut self) {
        self.durable.clone_from(&self.live);
        self.pending.clear();
    }

    /// Makes the names in a directory durable.
    pub(super) fn sync(&mut self, directory: &Path) {
        let survives = self.with_those_before(|change, _| parent(change.name()) == directory);
        self.keep(&survives);
    }

    /// Makes an unknown subset of the names in a directory durable.
    pub(super) fn fail_sync(&mut self, directory: &Path, random: &mut Prng) {
        let chosen = self.chosen(random);
        let survives = self
            .with_those_before(|change, index| parent(change.name()) == directory && chosen[index]);
        self.keep(&survives);
    }

    /// Makes these changes durable.
    fn keep(&mut self, survives: &[bool]) {
        let mut survives = survives.iter();
        self.pending.retain(|change| {
            let is_kept = survives.next() == Some(&true);
            if is_kept {
                change.apply(&mut self.durable);
            }
            !is_kept
        });
    }

    /// Returns the names after a power cut.
    pub(super) fn survivors(&self, random: &mut Prng) -> Self {
        let chosen = self.chosen(random);
        let survives = self.with_those_before(|_, index| chosen[index]);
        let mut found = self.durable.clone();
        for (change, _) in self
            .pending
            .iter()
            .zip(survives)
            .filter(|(_, survives)| *survives)
        {
            change.apply(&mut found);
        }
        let reachable = |path: &Path| {
            let mut above = path.ancestors().skip(1);
            above.all(|path| is_root(path) || found.get(path) == Some(&Entry::Directory))
        };
        let live: Map = found
            .iter()
            .filter(|(path, _)| reachable(path))
            .map(|(path, entry)| (path.clone(), *entry))
            .collect();
        Self {
            durable: live.clone(),
            live,
            pending: Vec::new(),
        }
    }

    /// Renumbers the files.
    pub(super) fn map_files(mut self, mut number: impl FnMut(usize) -> usize) -> Self {
        for entry in self.live.values_mut() {
            if let Entry::File(file) = entry {
                *file = number(*file);
            }
        }
        self.durable.clone_from(&self.live);
        self
    }

    /// Chooses at random which changes survive a simulated crash.
    fn chosen(&self, random: &mut Prng) -> Vec<bool> {
        let style = random.below(4);
        let border = random.index(self.pending.len() + 1);
        let chosen = (0..self.pending.len()).map(|index| match style {
            0 => false,
            1 => index < border,
            _ => random.below(2) == 0,
        });
        chosen.collect()
    }

    /// Returns the changes for which `wanted` is true, and earlier ones on which they depend. So a
    /// file cannot be renamed from a name that it never had, be found under two names, or be gone
    /// because a new file has the name from which it was to be renamed. Nor does the content of a
    /// directory appear in an earlier directory of the same name.
    fn with_those_before(&self, wanted: impl Fn(&NameChange, usize) -> bool) -> Vec<bool> {
        let mut touched: BTreeSet<&PathBuf> = BTreeSet::new();
        let mut marks = vec![false; self.pending.len()];
        for (index, change) in self.pending.iter().enumerate().rev() {
            if wanted(change, index) || change.precedes(&touched) {
                marks[index] = true;
                touched.extend(change.names());
            }
        }
        marks
    }
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
