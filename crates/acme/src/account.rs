//! The account with the authority: made once, with a key that is saved before.

use anteroom_fault::may_crash;
use anteroom_store::{CertificateStore, LeaseStore};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use instant_acme::{Account, AccountBuilder, Key, NewAccount};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::client::CaClient;
use crate::failure::{FailureKind, StepFailure, kind_of};
use crate::files::CertificateFolder;
use crate::share::Share;
use crate::state::AccountRecord;

/// Where accounts come from.
pub(crate) struct AccountSource<'a, S> {
    pub(crate) client: &'a CaClient,
    pub(crate) folder: &'a CertificateFolder,
    pub(crate) share: Option<&'a Share<S>>,
    /// The URL of the authority's directory.
    pub(crate) directory: &'a str,
    /// The contact.
    pub(crate) email: Option<&'a str>,
}

impl<S: CertificateStore + LeaseStore> AccountSource<'_, S> {
    /// Opens the account: that of the other proxies, else that of the folder, else a new one.
    pub(crate) async fn open(&self) -> Result<Account, StepFailure> {
        let shared = match self.share {
            Some(share) => share.account().await?,
            None => None,
        };
        let own = self.folder.account();
        let known = shared.iter().chain(&own).find_map(|record| self.usable(record));
        let (mut record, key) = match known {
            Some(known) => known,
            None => self.new_record()?,
        };
        let account = match record.id.clone() {
            Some(id) => {
                let key = PrivatePkcs8KeyDer::from(key);
                self.builder().from_parts(id, key, self.directory.to_owned()).await?
            }
            None => {
                let account = self.make(&mut record, key).await?;
                may_crash("acme-account");
                tracing::info!(
                    directory = self.directory,
                    "an account with the authority was made"
                );
                record.id = Some(account.id().to_owned());
                account
            }
        };
        if record.email.as_deref() != self.email {
            self.tell_contact(&account).await;
            record.email = self.email.map(str::to_owned);
        }
        if own.as_ref() != Some(&record) {
            self.folder.put_account(&record)?;
        }
        if let Some(share) = self.share.filter(|_| shared.as_ref() != Some(&record)) {
            share.put_account(&record).await?;
        }
        Ok(account)
    }

    /// Forgets the account, which the authority does not know any more: the next one has another key.
    pub(crate) async fn forget(&self) -> Result<(), StepFailure> {
        tracing::warn!(
            directory = self.directory,
            "the authority does not know the account: another is made"
        );
        let none = AccountRecord::default();
        self.folder.put_account(&none)?;
        match self.share {
            Some(share) => share.put_account(&none).await,
            None => Ok(()),
        }
    }

    /// A record with its key, if it is of this authority and not damaged.
    fn usable(&self, record: &AccountRecord) -> Option<(AccountRecord, Vec<u8>)> {
        let key = BASE64_STANDARD.decode(&record.key).ok()?;
        let is_key = Key::from_pkcs8_der(PrivatePkcs8KeyDer::from(key.as_slice())).is_ok();
        (is_key && record.directory == self.directory).then(|| (record.clone(), key))
    }

    /// A record of an account that is not made yet. The others learn of it once the authority knows it.
    fn new_record(&self) -> Result<(AccountRecord, Vec<u8>), StepFailure> {
        let (_, key) = Key::generate_pkcs8()?;
        let key = key.secret_pkcs8_der().to_vec();
        let record = AccountRecord {
            directory: self.directory.to_owned(),
            key: BASE64_STANDARD.encode(&key),
            id: None,
            email: None,
        };
        self.folder.put_account(&record)?;
        may_crash("acme-key");
        Ok((record, key))
    }

    fn builder(&self) -> AccountBuilder {
        Account::builder_with_http(Box::new(self.client.clone()))
    }

    fn contact(&self) -> Option<String> {
        self.email.map(|email| format!("mailto:{email}"))
    }

    /// Makes the account with the saved key. Made with the same key again, it is the same account.
    async fn make(&self, record: &mut AccountRecord, key: Vec<u8>) -> Result<Account, StepFailure> {
        let key = PrivatePkcs8KeyDer::from(key);
        let pair = (Key::from_pkcs8_der(key.clone_key())?, PrivateKeyDer::Pkcs8(key));
        let made = self.builder().create_from_key(pair, self.directory.to_owned()).await;
        let refusal = match made {
            Ok((account, _)) => return Ok(account),
            Err(refusal) => refusal,
        };
        let is_refused = kind_of(&refusal) == FailureKind::Refused;
        let Some(contact) = self.contact().filter(|_| is_refused) else {
            return Err(refusal.into());
        };
        // Some authorities make no account without a contact, which instant-acme sends with a key of its own only. A kill
        // before that key is saved leaves an account that nothing uses.
        tracing::debug!(error = %refusal, "the authority wants a contact first");
        let wanted = NewAccount {
            contact: &[contact.as_str()],
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let (account, made) =
            self.builder().create(&wanted, self.directory.to_owned(), None).await?;
        record.key = BASE64_STANDARD.encode(made.private_key().secret_pkcs8_der());
        record.email = self.email.map(str::to_owned);
        Ok(account)
    }

    /// Some authorities take no contacts. An order does not need one.
    async fn tell_contact(&self, account: &Account) {
        let contact = self.contact();
        let contacts: Vec<&str> = contact.as_deref().into_iter().collect();
        if let Err(error) = account.update_contacts(&contacts).await {
            tracing::warn!(%error, "the authority did not take the contact of [acme] email");
        }
    }
}
