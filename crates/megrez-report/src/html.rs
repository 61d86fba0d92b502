//! Markup: escaped text, tables, the document around them.

/// Text that is no markup.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

/// A table of texts; columns from the second on are numbers and stand on the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let row = |cells: &[String], tag: &str| {
        let cells: Vec<String> =
            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{}</tr>\n", cells.concat())
    };
    let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
    let body: Vec<String> = rows.iter().map(|cells| row(cells, "td")).collect();
    format!(
        "<div class=wide><table><thead>{}</thead><tbody>\n{}</tbody></table></div>\n",
        row(&head, "th"),
        body.concat()
    )
}

/// A table of words, all on the left.
pub fn words(head: &[&str], rows: &[Vec<String>]) -> String {
    table(head, rows).replacen("<table>", "<table class=words>", 1)
}

pub fn section(title: &str, body: &str) -> String {
    format!("<section><h2>{}</h2>\n{body}</section>\n", escape(title))
}

/// A picture with what it shows in words.
pub fn figure(svg: &str, caption: &str) -> String {
    format!("<figure>{svg}<figcaption>{}</figcaption></figure>\n", escape(caption))
}

pub fn details(summary: &str, body: &str) -> String {
    format!("<details><summary>{}</summary>\n{body}</details>\n", escape(summary))
}

pub fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

pub fn warning(text: &str) -> String {
    format!("<p class=warning>{}</p>\n", escape(text))
}

pub fn list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
    format!("<ul>\n{}</ul>\n", items.concat())
}

/// Nothing is loaded and nothing runs: the page shows itself whatever stands in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

const STYLE: &str = include_str!("style.css");

pub fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"{POLICY}\">\n<meta name=viewport content=\"width=device-width\">\n<title>megrez: {title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body class=megrez>\n{body}<footer>megrez {}. This page holds no inputs, no weights \
         and no outputs.</footer>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// For a page that has other things as well.
pub fn fragment(body: &str) -> String {
    format!("<div class=megrez><style>\n{STYLE}</style>\n{body}</div>\n")
}
