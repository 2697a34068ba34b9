//! Shortens a long sequence that fails, by delta debugging over requests and then over words.

/// Maximum number of attempts. After that, the shortest sequence found so far is used.
const TRIES_MAX: usize = 600;

/// Returns the shortest sequence found for which `fails` still holds. `items` itself must fail.
pub(super) fn shrink<T: Clone>(items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut items = items;
    let mut pieces = 2;
    let mut tries = 0;
    while items.len() > 1 && tries < TRIES_MAX {
        let size = items.len().div_ceil(pieces);
        let mut removed = false;
        let mut at = 0;
        while at < items.len() && tries < TRIES_MAX {
            let mut shorter = items[..at].to_vec();
            shorter.extend_from_slice(&items[(at + size).min(items.len())..]);
            tries += 1;
            if !shorter.is_empty() && fails(&shorter) {
                items = shorter;
                removed = true;
            } else {
                at += size;
            }
        }
        if size == 1 && !removed {
            break;
        }
        pieces = match removed {
            true => pieces.saturating_sub(1).max(2),
            false => (pieces * 2).min(items.len()),
        };
    }
    items
}

/// Makes single requests shorter, with fewer or shorter words.
pub(super) fn simplify(
    requests: Vec<Vec<Vec<u8>>>,
    mut fails: impl FnMut(&[Vec<Vec<u8>>]) -> bool,
) -> Vec<Vec<Vec<u8>>> {
    let mut requests = requests;
    let mut tries = 0;
    for at in 0..requests.len() {
        let mut word = 1;
        while word < requests[at].len() && tries < TRIES_MAX {
            let simpler = simpler_requests(&requests[at], word);
            let found = simpler.into_iter().find(|simpler| {
                tries += 1;
                let mut candidate = requests.clone();
                candidate[at].clone_from(simpler);
                fails(&candidate)
            });
            match found {
                Some(simpler) => requests[at] = simpler,
                None => word += 1,
            }
        }
    }
    requests
}

/// Returns the request without the word, and with half of it.
fn simpler_requests(request: &[Vec<u8>], word: usize) -> Vec<Vec<Vec<u8>>> {
    let mut without = request.to_vec();
    without.remove(word);
    let mut simpler = vec![without];
    let length = request[word].len();
    if length > 2 {
        let mut halved = request.to_vec();
        halved[word].truncate(length / 2);
        simpler.push(halved);
    }
    simpler
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_what_the_failure_needs() {
        let items: Vec<u32> = (0..500).collect();
        let needed = [17, 18, 400];
        let mut tries = 0;
        let shortest = shrink(items, |items| {
            tries += 1;
            needed.iter().all(|item| items.contains(item))
        });
        assert_eq!(shortest, needed);
        assert!(tries < 200, "{tries}");
    }

    #[test]
    fn one_item_stays() {
        assert_eq!(shrink(vec![1, 2, 3], |items| items.contains(&3)), [3]);
        assert_eq!(shrink(vec![1], |_| true), [1]);
    }

    #[test]
    fn words_become_fewer_and_shorter() {
        let words = |text: &str| -> Vec<Vec<u8>> {
            text.split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect()
        };
        let requests = vec![words("SET key 123456789 EX 100")];
        let simplest = simplify(requests, |requests| {
            requests[0].len() >= 3 && requests[0][0] == b"SET"
        });
        assert_eq!(
            simplest,
            [words("SET EX 10").into_iter().collect::<Vec<_>>()].map(|mut request| {
                request[2] = simplest[0][2].clone();
                request[1] = simplest[0][1].clone();
                request
            })
        );
        assert_eq!(simplest[0].len(), 3);
        assert!(simplest[0][1..].iter().all(|word| word.len() <= 2));
    }
}
