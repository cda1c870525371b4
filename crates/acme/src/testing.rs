//! What tests of several files use.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, IsCa, Issuer, KeyPair, date_time_ymd,
};

/// A certificate for `name` by an authority that is made here, with its key, in PEM.
pub(crate) fn issued(name: &str) -> String {
    issued_in(2020, name)
}

/// The same, valid from the first of January of a year on.
pub(crate) fn issued_in(year: i32, name: &str) -> String {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = Issuer::new(authority, KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = date_time_ymd(year, 1, 1);
    let key = KeyPair::generate().unwrap();
    params.signed_by(&key, &authority).unwrap().pem() + &key.serialize_pem()
}
