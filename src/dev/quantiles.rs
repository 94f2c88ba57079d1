//! Statistics of many measurements. Medians, because a machine is never quite idle.

/// The smallest of some numbers.
pub(crate) fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The middle one of some numbers; for an even count the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let (lower, upper) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    let sorted = sorted(values);
    match (sorted.get(lower), sorted.get(upper)) {
        (Some(&lower), Some(&upper)) => f64::midpoint(lower, upper),
        _ => f64::NAN,
    }
}

/// The number below which `part` of `whole` of the numbers are.
pub(crate) fn quantile(values: &[f64], part: usize, whole: usize) -> f64 {
    let place = (values.len() * part / whole).min(values.len().saturating_sub(1));
    sorted(values).get(place).copied().unwrap_or(f64::NAN)
}

/// Half the width of the interval that contains the true median in 19 of 20 cases: between the
/// numbers √n places left and right of the middle.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts far below 2^53"
)]
pub(crate) fn error_of_median(values: &[f64]) -> f64 {
    let away = (values.len() as f64).sqrt().round() as usize;
    let middle = values.len() / 2;
    let sorted = sorted(values);
    let lower = sorted.get(middle.saturating_sub(away)).copied();
    let upper = sorted
        .get((middle + away).min(values.len().saturating_sub(1)))
        .copied();
    lower
        .zip(upper)
        .map_or(f64::NAN, |(lower, upper)| (upper - lower) / 2.0)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::{error_of_median, least, median, quantile};

    #[test]
    fn the_middle_of_some_numbers() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
        let hundred: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert!((quantile(&hundred, 1, 4) - 25.0).abs() < f64::EPSILON);
        assert!((error_of_median(&hundred) - 10.0).abs() < f64::EPSILON);
        assert!(quantile(&[], 1, 4).is_nan() && error_of_median(&[]).is_nan());
        assert!((least(&[2.0, -1.0, 3.0]) + 1.0).abs() < f64::EPSILON);
    }
}
