//! Tests that values survive encoding, and that no bytes cause a crash.

use proptest::prelude::*;

use super::*;

/// A value as a tree, only for tests.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::calls) enum Tree {
    None,
    Bool(bool),
    Int(i64),
    BigInt(String),
    Float(u64),
    Str(Vec<u8>),
    Bytes(Vec<u8>),
    List(Vec<Tree>),
    Tuple(Vec<Tree>),
    Dict(Vec<(Tree, Tree)>),
    Array(ArrayClass, String, Vec<usize>, Vec<u8>),
    Objects(Vec<usize>, Vec<Tree>),
    Opaque(String),
}

pub(in crate::calls) fn encode(tree: &Tree, encoder: &mut Encoder<'_>) {
    match tree {
        Tree::None => encoder.none(),
        Tree::Bool(value) => encoder.bool(*value),
        Tree::Int(value) => encoder.int(*value),
        Tree::BigInt(digits) => encoder.big_int(digits),
        Tree::Float(bits) => encoder.float(f64::from_bits(*bits)),
        Tree::Str(text) => encoder.str(text),
        Tree::Bytes(bytes) => encoder.bytes(bytes),
        Tree::List(items) => {
            encoder.list(items.len());
            for item in items {
                encode(item, encoder);
            }
        }
        Tree::Tuple(items) => {
            encoder.tuple(items.len());
            for item in items {
                encode(item, encoder);
            }
        }
        Tree::Dict(items) => {
            encoder.dict(items.len());
            for (key, value) in items {
                encode(key, &mut encoder.key());
                encode(value, encoder);
            }
        }
        Tree::Array(class, dtype, shape, bytes) => encoder.array(*class, dtype, shape, bytes),
        Tree::Objects(shape, items) => {
            encoder.objects(shape);
            for item in items {
                encode(item, encoder);
            }
        }
        Tree::Opaque(name) => encoder.opaque(name),
    }
}

pub(in crate::calls) fn decode(
    decoder: &mut Decoder<'_>,
    in_key: bool,
    large: &[Vec<u8>],
) -> Result<Tree, Malformed> {
    let items = |decoder: &mut Decoder<'_>, count: usize| {
        (0..count)
            .map(|_| decode(decoder, in_key, large))
            .collect::<Result<Vec<_>, _>>()
    };
    let bytes = |leaf: Leaf<'_>| match leaf {
        Leaf::Inline(bytes) => bytes.to_vec(),
        Leaf::Large { index, size } => {
            assert_eq!(large[index].len(), size);
            large[index].clone()
        }
    };
    let node = if in_key {
        decoder.key()?
    } else {
        decoder.node()?
    };
    Ok(match node {
        Token::None => Tree::None,
        Token::Bool(value) => Tree::Bool(value),
        Token::Int(value) => Tree::Int(value),
        Token::BigInt(digits) => {
            Tree::BigInt(String::from_utf8(bytes(digits)).map_err(|_| Malformed)?)
        }
        Token::Float(value) => Tree::Float(value.to_bits()),
        Token::Str(text) => Tree::Str(bytes(text)),
        Token::Bytes(leaf) => Tree::Bytes(bytes(leaf)),
        Token::List(count) => Tree::List(items(decoder, count)?),
        Token::Tuple(count) => Tree::Tuple(items(decoder, count)?),
        Token::Dict(count) => Tree::Dict(
            (0..count)
                .map(|_| {
                    Ok((
                        decode(decoder, true, large)?,
                        decode(decoder, in_key, large)?,
                    ))
                })
                .collect::<Result<_, _>>()?,
        ),
        Token::Array {
            class,
            dtype,
            shape,
            bytes: leaf,
        } => Tree::Array(
            class,
            dtype.to_owned(),
            shape.dimensions().collect(),
            bytes(leaf),
        ),
        Token::Objects(shape) => {
            let count = shape.num_elements().ok_or(Malformed)?;
            if count > 1000 {
                return Err(Malformed);
            }
            Tree::Objects(shape.dimensions().collect(), items(decoder, count)?)
        }
        Token::Opaque(name) => Tree::Opaque(name.to_owned()),
    })
}

fn arrays() -> impl Strategy<Value = Tree> {
    let class = prop::sample::select(ArrayClass::ALL.to_vec());
    let dtype = prop::sample::select(vec!["<f4", "|b1", "<U5", "bfloat16", "<M8[ns]"]);
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        prop::collection::vec(any::<u8>(), INLINE_BYTES - 1..INLINE_BYTES + 3),
    ];
    (
        class,
        dtype,
        prop::collection::vec(0_usize..400, 0..4),
        bytes,
    )
        .prop_map(|(class, dtype, shape, bytes)| Tree::Array(class, dtype.into(), shape, bytes))
}

fn leaves() -> impl Strategy<Value = Tree> {
    prop_oneof![
        Just(Tree::None),
        any::<bool>().prop_map(Tree::Bool),
        any::<i64>().prop_map(Tree::Int),
        "-?0x[1-9a-f][0-9a-f]{16,300}".prop_map(Tree::BigInt),
        any::<u64>().prop_map(Tree::Float),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Tree::Str),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Tree::Bytes),
        arrays(),
        "[A-Za-z.]{1,12}".prop_map(Tree::Opaque),
    ]
}

pub(in crate::calls) fn trees() -> impl Strategy<Value = Tree> {
    let hashable = prop_oneof![
        any::<i64>().prop_map(Tree::Int),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Tree::Str),
        prop::collection::vec(any::<i64>().prop_map(Tree::Int), 0..3).prop_map(Tree::Tuple),
    ];
    leaves().prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::List),
            prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::Tuple),
            prop::collection::vec((hashable.clone(), inner.clone()), 0..5).prop_map(Tree::Dict),
            prop::collection::vec(inner, 3).prop_map(|items| Tree::Objects(vec![3, 1], items)),
        ]
    })
}

proptest! {
    #[test]
    fn every_value_comes_back(tree in trees()) {
        let mut encoded = Encoded::default();
        encode(&tree, &mut encoded.encoder());
        let large: Vec<_> = encoded.large_leaves().map(<[u8]>::to_vec).collect();
        let mut decoder = Decoder::new(&encoded.skeleton, &encoded.payload);
        prop_assert_eq!(decode(&mut decoder, false, &large), Ok(tree));
        prop_assert!(decoder.is_at_end());
    }

    #[test]
    fn no_bytes_are_a_crash(skeleton: Vec<u8>, payload: Vec<u8>) {
        let mut decoder = Decoder::new(&skeleton, &payload);
        while decoder.node().is_ok() {}
    }
}

#[test]
fn the_usual_logs_of_a_training_call_are_eight_bytes_a_call() {
    let mut encoded = Encoded::default();
    let mut encoder = encoded.encoder();
    encoder.dict(2);
    for name in ["loss", "accuracy"] {
        encoder.key().str(name.as_bytes());
        encoder.array(ArrayClass::Scalar, "<f4", &[], &[0; 4]);
    }
    assert_eq!(encoded.payload.len(), 8);
}

#[test]
fn a_shape_is_written_as_python_does() {
    for (shape, text) in [
        (vec![], "()"),
        (vec![3], "(3,)"),
        (vec![64, 28, 1], "(64, 28, 1)"),
    ] {
        let mut encoded = Encoded::default();
        encoded
            .encoder()
            .array(ArrayClass::Ndarray, "|u1", &shape, &[]);
        let mut decoder = Decoder::new(&encoded.skeleton, &encoded.payload);
        let Ok(Token::Array { shape, .. }) = decoder.node() else {
            panic!("not an array")
        };
        assert_eq!(shape.to_string(), text);
    }
}
