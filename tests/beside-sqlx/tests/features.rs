//! What `leasehold` refuses in a build with the one feature `sqlite`.

use leasehold::{ErrorKind, Locker};

#[tokio::test]
async fn a_url_of_the_php_librarys_table_names_the_feature_that_is_missing() {
    for format in ["nene", "legacy"] {
        let error = Locker::connect(&format!("sqlite:app.db?format={format}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("the cargo feature nene of leasehold"), "{error}");
    }
}
