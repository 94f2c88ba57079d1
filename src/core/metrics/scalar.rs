//! The number in a recorded value: a Python number, or an array of rank 0.

use crate::calls::value::{Leaf, Token};

/// The number in a node, if it is one.
pub(super) fn scalar(token: &Token<'_>) -> Option<f64> {
    match *token {
        Token::Bool(value) => Some(f64::from(u8::from(value))),
        #[expect(clippy::cast_precision_loss, reason = "an average is rounded anyhow")]
        Token::Int(value) => Some(value as f64),
        Token::Float(value) => Some(value),
        Token::Array {
            dtype,
            shape,
            bytes: Leaf::Inline(bytes),
            ..
        } if shape.rank() == 0 => element(dtype, bytes),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "an average is rounded anyhow")]
fn element(dtype: &str, bytes: &[u8]) -> Option<f64> {
    Some(match dtype {
        "<f4" => f32::from_le_bytes(bytes.try_into().ok()?).into(),
        "<f8" => f64::from_le_bytes(bytes.try_into().ok()?),
        "<f2" => from_half(u16::from_le_bytes(bytes.try_into().ok()?)),
        "bfloat16" => {
            let bits = u16::from_le_bytes(bytes.try_into().ok()?);
            f32::from_bits(u32::from(bits) << 16).into()
        }
        "<i4" => i32::from_le_bytes(bytes.try_into().ok()?).into(),
        "<i8" => i64::from_le_bytes(bytes.try_into().ok()?) as f64,
        "<u4" => u32::from_le_bytes(bytes.try_into().ok()?).into(),
        "<u8" => u64::from_le_bytes(bytes.try_into().ok()?) as f64,
        _ => return None,
    })
}

/// The value of an IEEE 754 half-precision number.
fn from_half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff);
    sign * match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_is_what_numpy_says() {
        let known = [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 2_f64.powi(-24)),
            (0x7bff, 65504.0),
        ];
        for (bits, value) in known {
            assert_eq!(from_half(bits).to_bits(), f64::to_bits(value), "{bits:#x}");
        }
        assert!(from_half(0x7c00).is_infinite() && from_half(0x7e00).is_nan());
    }
}
