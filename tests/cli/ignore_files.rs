//! `.pedlignore` and `.detignore`: their syntax is compared with fixed expectations, and with git
//! if there is one.

use std::fs;

use super::package::{DEFINITION, definition, files, package};
use crate::support::{Dir, TestCommand};

fn sorted<'a>(names: impl IntoIterator<Item = &'a &'a str>) -> Vec<String> {
    let mut names: Vec<_> = names.into_iter().map(|it| (*it).to_owned()).collect();
    names.sort();
    names
}

// -- the syntax ----------------------------------------------------------------------------------

/// A text of an ignore file, and the files that it omits and keeps.
struct Vector {
    about: &'static str,
    text: &'static str,
    omits: &'static [&'static str],
    keeps: &'static [&'static str],
}

static VECTORS: &[Vector] = &[
    Vector {
        about: "comments, empty lines, and names at any depth",
        text: "# data\n\nfoo\n   \n",
        omits: &["foo", "a/foo", "a/b/foo/x"],
        keeps: &["# data", "foo.py", "a/food"],
    },
    Vector {
        about: "an escaped hash, an escaped exclamation mark",
        text: "\\#notes\n\\!bang\n",
        omits: &["#notes", "a/#notes", "!bang"],
        keeps: &["notes", "bang"],
    },
    Vector {
        about: "a hash behind the first character is itself",
        text: "a#b\n  #c\n",
        omits: &["a#b", "  #c"],
        keeps: &["a", "#c"],
    },
    Vector {
        about: "what is taken in again; the last line that matches decides",
        text: "*.log\n!keep.log\n",
        omits: &["a.log", "a/b.log"],
        keeps: &["keep.log", "a/keep.log"],
    },
    Vector {
        about: "the order of lines",
        text: "!keep.log\n*.log\n",
        omits: &["keep.log"],
        keeps: &["a"],
    },
    Vector {
        about: "nothing is taken in again below a directory that is omitted",
        text: "data/\n!data/keep.csv\n!data/deep/\n",
        omits: &["data/keep.csv", "data/deep/x", "a/data/keep.csv"],
        keeps: &["keep.csv"],
    },
    Vector {
        about: "but below one of which all is omitted",
        text: "/data/*\n!/data/keep.csv\n",
        omits: &["data/a.csv", "data/deep/keep.csv"],
        keeps: &["data/keep.csv", "a/data/b.csv"],
    },
    Vector {
        about: "a slash at the end: directories alone",
        text: "build/\n",
        omits: &["build/a", "a/build/b"],
        keeps: &["a/b/build", "buildx/a"],
    },
    Vector {
        about: "a slash at the beginning: at the top alone",
        text: "/foo\n/*.csv\n",
        omits: &["foo", "a.csv"],
        keeps: &["a/foo", "a/b.csv"],
    },
    Vector {
        about: "a slash in the middle: from the top",
        text: "a/foo\ndoc/*.txt\n",
        omits: &["a/foo", "doc/x.txt"],
        keeps: &["b/a/foo", "doc/deep/x.txt", "b/doc/x.txt"],
    },
    Vector {
        about: "two stars in the middle: any depth, none too",
        text: "a/**/b\n",
        omits: &["a/b", "a/x/b", "a/x/y/b/z"],
        keeps: &["b", "a/xb", "c/a/b"],
    },
    Vector {
        about: "two stars at the beginning",
        text: "**/x\n**/y/z\n",
        omits: &["x", "a/x", "y/z", "a/b/y/z"],
        keeps: &["ax", "z", "y/a/z"],
    },
    Vector {
        about: "two stars at the end: all below",
        text: "x/**\n",
        omits: &["x/a", "x/b/c"],
        keeps: &["a/x/b", "x.py"],
    },
    Vector {
        about: "stars that are not between slashes are one",
        text: "a**b\nc/***/d\n",
        omits: &["ab", "axxb", "y/axb", "c/d", "c/x/d"],
        keeps: &["a/b", "c/xd"],
    },
    Vector {
        about: "one star and one question mark stop at a slash",
        text: "/a*z\n/b?z\n",
        omits: &["az", "abcz", "bxz"],
        keeps: &["a/z", "b/z", "bz"],
    },
    Vector {
        about: "classes",
        text: "[ab]\nc[0-9]\nd[!x]\ne[^x]\nf[]]\ng[a-]\nh[[:digit:]]\n",
        omits: &["a", "b", "c3", "dy", "ey", "f]", "g-", "ga", "h7"],
        keeps: &["z", "cx", "dx", "ex", "f", "gb", "hx", "d/x"],
    },
    Vector {
        about: "escapes in classes",
        text: "a[\\]]\nb[\\-x]\nc[!\\]a]\nd[a-c-e]\n",
        omits: &["a]", "b-", "bx", "cx", "db", "d-", "de"],
        keeps: &["a\\", "b\\", "c]", "ca", "dd"],
    },
    Vector {
        about: "a class that is not closed matches nothing",
        text: "[a\nx[\n",
        omits: &[],
        keeps: &["[a", "a", "x["],
    },
    Vector {
        about: "braces are themselves",
        text: "{a,b}\n*.{csv,txt}\n",
        omits: &["{a,b}", "x.{csv,txt}"],
        keeps: &["a", "b", "x.csv"],
    },
    Vector {
        about: "escaped wildcards",
        text: "\\*\n\\?x\na\\[b]\n",
        omits: &["*", "?x", "a[b]"],
        keeps: &["y", "yx", "ab"],
    },
    Vector {
        about: "spaces at the end are dropped",
        text: "foo   \n",
        omits: &["foo"],
        keeps: &["foo   ", "foo "],
    },
    Vector {
        about: "but for one that is escaped",
        text: "foo\\ \nbar\\   \n",
        omits: &["foo ", "bar "],
        keeps: &["foo", "bar", "bar  "],
    },
    Vector {
        about: "tabs and spaces elsewhere belong to the name",
        text: " a\nb\t\nc d\n",
        omits: &[" a", "b\t", "c d"],
        keeps: &["a", "b", "c"],
    },
    Vector {
        about: "a backslash at the end matches nothing",
        text: "foo\\\nbar\n",
        omits: &["bar"],
        keeps: &["foo", "foo\\"],
    },
    Vector {
        about: "lines that end as on Windows, a mark at the beginning, no end of the last line",
        text: "\u{feff}foo\r\nbar/\r\nlast",
        omits: &["foo", "bar/x", "last"],
        keeps: &["x"],
    },
    Vector {
        about: "lines that say nothing",
        text: "/\n!\n!/\n",
        omits: &[],
        keeps: &["a", "b/c"],
    },
    Vector {
        about: "names that begin with a dot are names",
        text: "*\n!.env\n",
        omits: &["a", ".hidden", "b/.env"],
        keeps: &[".env"],
    },
    Vector {
        about: "letters of other alphabets, upper and lower case",
        text: "donn\u{e9}es\nData\n",
        omits: &["donn\u{e9}es", "Data"],
        keeps: &["donnees", "data"],
    },
];

impl Vector {
    fn files(&self) -> Vec<&'static str> {
        [self.omits, self.keeps].concat()
    }

    fn text_for(&self, ignore_file: &str) -> Dir {
        let directory = definition(&self.files());
        directory.write(&format!("{DEFINITION}/{ignore_file}"), self.text);
        directory
    }
}

#[test]
fn m6_lines_of_pedlignore_omit_what_they_do_for_git() {
    for vector in VECTORS {
        let directory = vector.text_for(".pedlignore");
        assert_eq!(
            files(&directory),
            sorted(vector.keeps),
            "{}: {:?}",
            vector.about,
            vector.text
        );
    }
}

/// A repository with the same files as a definition.
struct Repository(Dir);

impl Repository {
    /// `None`, and a printed line, if there is no git.
    fn new(files: &[&str]) -> Option<Self> {
        let directory = definition(files);
        let repository = Self(directory);
        if TestCommand::new("/usr/bin/env")
            .args(["git", "--version"])
            .output()
            .status
            .success()
        {
            repository.git(&["init", "--quiet"]).output().assert_code(0);
            return Some(repository);
        }
        eprintln!("skipped: there is no git to compare with");
        None
    }

    fn git(&self, arguments: &[&str]) -> TestCommand {
        let root = self.0.join(DEFINITION);
        TestCommand::new("/usr/bin/env")
            .arg("git")
            .arg("--git-dir")
            .arg(root.join(".git"))
            .arg("--work-tree")
            .arg(&root)
            .args(["-c", "core.excludesFile=/dev/null"])
            .args(arguments)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(&root)
    }

    /// The given files that git does not ignore.
    fn keeps(&self, text: &str, files: &[&str]) -> Vec<String> {
        self.0.write(&format!("{DEFINITION}/.gitignore"), text);
        let output = self
            .git(&["check-ignore", "--no-index", "--stdin", "-z"])
            .stdin(&files.join("\0"))
            .output();
        // 1: none is ignored.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output}");
        let omitted: Vec<_> = output.stdout.split_terminator('\0').collect();
        sorted(files.iter().filter(|file| !omitted.contains(file)))
    }
}

#[test]
fn m6_git_itself_omits_what_is_expected() {
    for vector in VECTORS {
        let files = vector.files();
        let Some(repository) = Repository::new(&files) else {
            return;
        };
        assert_eq!(
            repository.keeps(vector.text, &files),
            sorted(vector.keeps),
            "{}: {:?}",
            vector.about,
            vector.text
        );
    }
}

/// Random numbers (xorshift), the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, number: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % number
    }

    fn one_of<'a>(&mut self, pieces: &[&'a str]) -> &'a str {
        pieces[self.below(pieces.len())]
    }
}

/// `a**/b` is `a*/b` by the manual of git, which we follow. But git takes it for `ab` and `a/x/b`
/// as well, because it compares the text before the first star separately.
fn has_stars_in_a_name(line: &str) -> bool {
    let stars = line.match_indices("**").map(|(at, _)| &line[..at]);
    let mut before = stars.map(|it| it.trim_end_matches('*'));
    before.any(|it| !it.is_empty() && !it.ends_with(['/', '!']))
}

#[test]
fn m6_texts_that_are_drawn_omit_what_they_do_for_git() {
    const NUM_TEXTS: usize = 400;
    const FILES: [&str; 22] = [
        "a", "b", "ab", "abb", "a-", "a]", "a b", "{a,b}", "!a", "#a", "a ", "[a", "c/a", "c/b",
        "c/d/a", "c/d/ab", "c/d/e/b", "d/a", "d/c/a", "d/c/b", "e/c/d/a", "f/-",
    ];
    const PIECES: [&str; 26] = [
        "a", "a", "b", "c", "d", "e", "/", "/", "/", "*", "*", "**", "/**/", "**/", "?", "[ab]",
        "[!a]", "[^b-d]", "[a-c-]", "[]-a]", "\\a", "\\*", "{", ",b}", "-", " ",
    ];
    let Some(repository) = Repository::new(&FILES) else {
        return;
    };
    let directory = definition(&FILES);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut different = Vec::new();
    for _ in 0..NUM_TEXTS {
        let mut text = String::new();
        for _ in 0..=dice.below(4) {
            text.push_str(dice.one_of(&["", "", "", "!", "/", "!/"]));
            for _ in 0..=dice.below(4) {
                text.push_str(dice.one_of(&PIECES));
            }
            text.push('\n');
        }
        if text.lines().any(has_stars_in_a_name) {
            continue;
        }
        directory.write(&format!("{DEFINITION}/.pedlignore"), &text);
        let (ours, of_git) = (files(&directory), repository.keeps(&text, &FILES));
        if ours != of_git {
            different.push(format!("{text:?}\n  git:  {of_git:?}\n  ours: {ours:?}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn m6_lines_that_match_nothing_are_told() {
    let directory = definition(&["a", ".pedlignore"]);
    directory.write(&format!("{DEFINITION}/.pedlignore"), "b\n[a\nx\\\n");
    package(&directory, &[DEFINITION]).assert_code(0).assert_stderr(
        "pedl: `.pedlignore` is skipped: line 2 matches nothing, as with git: there is no `]` to its `[`\n\
         pedl: `.pedlignore` is skipped: line 3 matches nothing, as with git: error parsing glob 'x\\': dangling '\\'\n",
    );
}

#[test]
fn m6_an_ignore_file_that_cannot_be_read_is_an_error() {
    let directory = definition(&["a"]);
    let path = directory.join(format!("{DEFINITION}/.pedlignore"));
    fs::write(&path, b"a\n\xe9t\xe9\n").expect("written");
    package(&directory, &[DEFINITION])
        .assert_code(65)
        .assert_stderr(
            "pedl: error: `definition/.pedlignore` cannot be read\n  line 2 is not text in UTF-8\n\
         hint: what it omits cannot be told without it\n",
        );
    fs::remove_file(&path).expect("it is there");
    fs::create_dir(&path).expect("made");
    package(&directory, &[DEFINITION])
        .assert_code(65)
        .assert_stderr(
            "pedl: error: `definition/.pedlignore` cannot be read\n  Is a directory (os error 21)\n\
         hint: what it omits cannot be told without it\n",
        );
}

#[test]
fn m6_ignore_files_count_at_the_top_alone() {
    let directory = definition(&["a.csv", "sub/a.csv"]);
    directory.write(&format!("{DEFINITION}/sub/.pedlignore"), "*\n");
    assert_eq!(files(&directory), ["a.csv", "sub/.pedlignore", "sub/a.csv"]);
}

// -- what is always left out ----------------------------------------------------------------------

#[test]
fn m7_byte_compiled_files_never_travel() {
    let compiled = [
        "a.pyc",
        "a.pyo",
        "a$py.class",
        "__pycache__/a.cpython-37.pyc",
        "__pycache__/notes.txt",
        "sub/__pycache__/b.py",
        "sub/b.pyc",
    ];
    let kept = ["a.py", "a.pyd", "py.class", "sub/__pycache__.py"];
    let directory = definition(&[&compiled[..], &kept].concat());
    let again = "!*.pyc\n!*.pyo\n!*$py.class\n!__pycache__/\n!__pycache__/**\n!**\n";
    for text in ["", again] {
        for name in [".pedlignore", ".detignore"] {
            directory.write(&format!("{DEFINITION}/{name}"), text);
            assert_eq!(files(&directory), sorted(&kept), "{name}: {text:?}");
        }
    }
    for name in [".pedlignore", ".detignore"] {
        fs::remove_file(directory.join(format!("{DEFINITION}/{name}"))).expect("it is there");
    }
    assert_eq!(files(&directory), sorted(&kept), "without a file");
}

#[test]
fn m8_detignore_alone_is_read_by_the_same_rules() {
    for vector in VECTORS {
        let directory = vector.text_for(".detignore");
        assert_eq!(files(&directory), sorted(vector.keeps), "{}", vector.about);
    }
}

#[test]
fn m8_detignore_goes_on_where_pedlignore_ends() {
    let directory = definition(&["a.csv", "keep.csv", "b.log", "model.py"]);
    let write = |name: &str, text: &str| directory.write(&format!("{DEFINITION}/{name}"), text);
    write(".pedlignore", "*.csv\n");
    write(".detignore", "!keep.csv\n*.log\n");
    assert_eq!(files(&directory), ["keep.csv", "model.py"]);
    // The other way round, the later file decides.
    write(".pedlignore", "!keep.csv\n*.log\n");
    write(".detignore", "*.csv\n");
    assert_eq!(files(&directory), ["model.py"]);
}

#[test]
fn m8_neither_ignore_file_travels_nor_do_trials() {
    let directory = definition(&[
        "a.py",
        ".pedl/a/trial.json",
        "sub/.pedl/b/trial.json",
        ".pedlrc",
    ]);
    for name in [".pedlignore", ".detignore"] {
        directory.write(
            &format!("{DEFINITION}/{name}"),
            "!.pedlignore\n!.detignore\n!.pedl/\n",
        );
    }
    assert_eq!(files(&directory), [".pedlrc", "a.py"]);
}
