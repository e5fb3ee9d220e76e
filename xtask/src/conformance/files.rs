//! Copying files so that those that are right already keep their time, by which tools tell whether
//! there is something to do.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Makes `to` a file like `from`.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let wanted = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    fs::write(to, wanted).with_context(|| format!("cannot write {}", to.display()))
}

/// Makes `to` a folder with the files of `from`, which has no folders, and no other files.
pub(super) fn mirror(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let wanted = names(from)?;
    for name in names(to)?.iter().filter(|name| !wanted.contains(name)) {
        let file = to.join(name);
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    wanted.iter().try_for_each(|name| copy(&from.join(name), &to.join(name)))
}

/// What is in a folder.
pub(super) fn names(folder: &Path) -> Result<Vec<OsString>> {
    let list = || fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect();
    let names: std::io::Result<_> = list();
    names.with_context(|| format!("cannot list {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_has_what_the_folder_has_and_touches_only_what_differs() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("same"), "same").unwrap();
        fs::write(from.path().join("new"), "new").unwrap();
        fs::write(to.path().join("same"), "same").unwrap();
        fs::write(to.path().join("old"), "old").unwrap();
        let time = || to.path().join("same").metadata().unwrap().modified().unwrap();
        let before = time();

        mirror(from.path(), to.path()).unwrap();

        let mut names = names(to.path()).unwrap();
        names.sort();
        assert_eq!(names, ["new", "same"]);
        assert_eq!(time(), before);
    }
}
