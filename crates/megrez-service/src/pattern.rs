//! Names by pattern, in policies and rules.

/// Whether a name is one of a pattern, in which `*` stands for any letters.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, is) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("a*c", "ac", true),
            ("ab*bc", "abc", false),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern, name), is, "{pattern} {name}");
        }
    }
}
