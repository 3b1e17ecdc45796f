use super::*;

struct Setup {
    folder: tempfile::TempDir,
    changes: Receiver<()>,
    watcher: Watcher,
}

fn watch(prepare: impl FnOnce(&Path) -> PathBuf) -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let path = prepare(folder.path());
    let digest = crypto::sha256_hex(&std::fs::read(&path).unwrap());
    let (sender, changes) = channel();
    let watcher = Watcher::start(vec![LoadedFile { path, digest }], move || {
        sender.send(()).unwrap()
    })
    .unwrap();
    Setup {
        folder,
        changes,
        watcher,
    }
}

fn plain(folder: &Path) -> PathBuf {
    let path = folder.join("manifold.yaml");
    std::fs::write(&path, "a: 1\n").unwrap();
    path
}

impl Setup {
    fn expect_one(&self) {
        self.changes.recv_timeout(Duration::from_secs(10)).unwrap();
        self.expect_none();
    }

    /// Several quiet times pass without a call.
    fn expect_none(&self) {
        assert!(self.changes.recv_timeout(QUIET * 4).is_err());
    }
}

#[test]
fn edits_in_place_count_once_and_equal_content_not_at_all() {
    let setup = watch(plain);
    let path = setup.folder.path().join("manifold.yaml");
    std::fs::write(&path, "a: 1\n").unwrap();
    std::fs::write(setup.folder.path().join("other.txt"), "x").unwrap();
    setup.expect_none();
    std::fs::write(&path, "a: 2\n").unwrap();
    std::fs::write(&path, "a: 3\n").unwrap();
    setup.expect_one();
    drop(setup.watcher);
}

#[test]
fn replacing_by_rename_counts_each_time() {
    let setup = watch(plain);
    for content in ["a: 2\n", "a: 3\n"] {
        let new = setup.folder.path().join("manifold.yaml.new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(&new, setup.folder.path().join("manifold.yaml")).unwrap();
        setup.expect_one();
    }
}

#[cfg(unix)]
#[test]
fn a_config_map_swap_counts() {
    use std::os::unix::fs::symlink;
    let setup = watch(|folder| {
        std::fs::create_dir(folder.join("..1")).unwrap();
        std::fs::write(folder.join("..1/manifold.yaml"), "a: 1\n").unwrap();
        symlink("..1", folder.join("..data")).unwrap();
        symlink("..data/manifold.yaml", folder.join("manifold.yaml")).unwrap();
        folder.join("manifold.yaml")
    });
    let folder = setup.folder.path();
    for (round, content) in [("..2", "a: 2\n"), ("..3", "a: 3\n")] {
        std::fs::create_dir(folder.join(round)).unwrap();
        std::fs::write(folder.join(round).join("manifold.yaml"), content).unwrap();
        symlink(round, folder.join("..data_tmp")).unwrap();
        std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        setup.expect_one();
    }
}

#[test]
fn a_change_between_load_and_watch_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = plain(folder.path());
    let (sender, changes) = channel();
    let before = LoadedFile {
        path,
        digest: "of an earlier content".to_owned(),
    };
    let _watcher = Watcher::start(vec![before], move || sender.send(()).unwrap()).unwrap();
    changes.recv_timeout(Duration::from_secs(10)).unwrap();
}
