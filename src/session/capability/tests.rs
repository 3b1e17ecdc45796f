use super::*;

#[test]
fn a_set_survives_its_own_spelling() {
    for bits in 0..=CapabilitySet::ALL.bits() {
        let set = CapabilitySet::from_bits(bits);
        // Sub-capabilities without their parent cannot be spelled.
        let lost = (!set.has(CapabilitySet::ROOTS) && set.has(CapabilitySet::ROOTS_LIST_CHANGED))
            || (!set.has(CapabilitySet::SAMPLING)
                && (set.has(CapabilitySet::SAMPLING_TOOLS) || set.has(CapabilitySet::SAMPLING_CONTEXT)));
        if !lost {
            assert_eq!(
                CapabilitySet::from_json(set.to_json().as_bytes()),
                set,
                "{}",
                set.to_json()
            );
        }
    }
}

#[test]
fn an_empty_elicitation_object_means_forms() {
    assert_eq!(
        CapabilitySet::from_json(b"{\"elicitation\":{}}"),
        CapabilitySet::ELICITATION_FORM
    );
    assert_eq!(
        CapabilitySet::from_json(b"{\"elicitation\":{\"url\":{}}}"),
        CapabilitySet::ELICITATION_URL
    );
    assert_eq!(
        CapabilitySet::from_json(b"{\"elicitation\":null,\"x\":1}"),
        CapabilitySet::NONE
    );
}
