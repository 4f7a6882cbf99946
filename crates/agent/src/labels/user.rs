//! Whose process it is: a name where the host knows one, else the number.

use super::Surroundings;

pub fn labels(surroundings: &Surroundings<'_>) -> Vec<(String, String)> {
    let passwd = std::fs::read_to_string(surroundings.root.join("etc/passwd")).unwrap_or_default();
    let uid = surroundings.process.uid.to_string();
    let name = name_of(&passwd, &uid).map_or_else(|| uid.clone(), str::to_owned);
    vec![("user".to_owned(), name)]
}

fn name_of<'a>(passwd: &'a str, uid: &str) -> Option<&'a str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_name_has_none() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_of(passwd, "1000"), Some("ada"));
        assert_eq!(name_of(passwd, "7"), None);
    }
}
