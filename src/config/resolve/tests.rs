use super::*;

fn environment() -> BTreeMap<String, String> {
    [("TOKEN", "s3cret"), ("EMPTY", ""), ("HOME", "/home/me")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
}

fn expand(text: &str) -> Result<String, String> {
    Resolver {
        environment: &environment(),
        program: Some(Path::new("/bin/manifold")),
    }
    .expand(text)
}

#[test]
fn variables_defaults_and_escapes_are_expanded() {
    for (written, expected) in [
        ("plain $5 {x}", "plain $5 {x}"),
        ("Bearer ${env:TOKEN}", "Bearer s3cret"),
        ("${TOKEN}-${TOKEN}", "s3cret-s3cret"),
        ("${TOKEN:-x}", "s3cret"),
        ("${EMPTY}|${EMPTY:-x}|${UNSET:-y}|${env:UNSET:-}", "|x|y|"),
        ("$${TOKEN} costs $$5", "${TOKEN} costs $$5"),
        ("${self} serve", "/bin/manifold serve"),
        ("${exec:printf '%s\\n' one}", "one"),
        ("${exec:echo x | { cat; }}!", "x!"),
    ] {
        assert_eq!(expand(written).unwrap(), expected, "{written}");
    }
}

#[test]
fn what_cannot_be_resolved_names_the_reference_and_no_value() {
    for (written, part) in [
        (
            "${env:UNSET} ${TOKEN}",
            "${env:UNSET}: the environment variable UNSET is not set",
        ),
        ("${TOKEN", "the `}` is missing"),
        ("${input:key}", "${input:key}: references are"),
        ("${file:relative}", "must be absolute"),
        (
            "${file:/nonexistent/x}",
            "${file:/nonexistent/x}: cannot read the file",
        ),
        (
            "${exec:echo s3cret; exit 3}",
            "the command failed (exit status: 3)",
        ),
    ] {
        let error = expand(written).unwrap_err();
        assert!(error.contains(part), "{error}");
        assert!(written.contains("s3cret") || !error.contains("s3cret"), "{error}");
    }
}

#[test]
fn files_lose_one_line_break_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "abc\r\n").unwrap();
    assert_eq!(
        expand(&format!("<${{file:{}}}>", path.display())).unwrap(),
        "<abc>"
    );
    std::fs::write(&path, vec![b'x'; 70_000]).unwrap();
    assert!(
        expand(&format!("${{file:{}}}", path.display()))
            .unwrap_err()
            .contains("64 KiB")
    );
}
