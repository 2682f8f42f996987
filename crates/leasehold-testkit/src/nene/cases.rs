//! What every store in the table does beside a client in PHP, in real time.

mod beside;
pub(crate) mod calls;
mod defects;
mod library;

pub use beside::*;
pub use calls::config;
pub use defects::*;
pub use library::*;

/// The tests of the table, for a [`Database`](crate::nene::Database).
#[macro_export]
macro_rules! nene_tests {
    ($database:ty) => {
        $crate::nene_tests! { $database:
            acquire_passes_the_librarys_cases
            release_passes_the_librarys_cases
            renew_passes_the_librarys_cases
            is_held_passes_the_librarys_cases
            a_resource_is_held_as_long_as_for_php

            both_sides_exclude_each_other
            both_sides_contend_and_nobody_holds_beside_another
            of_contenders_for_an_expired_row_one_wins
            a_row_removed_between_read_and_write_is_added_again
            a_lease_removed_while_its_renewal_waited_is_gone
            a_lease_that_ended_while_its_renewal_waited_is_not_revived
            an_own_expired_row_is_acquired_afresh_and_released_as_expired
            renewing_twice_in_the_same_second_succeeds
            names_and_terms_that_do_not_fit_are_refused
            names_that_differ_in_case_or_spaces_are_different_locks
            rows_of_names_that_are_no_keys_are_counted_and_named
            a_purge_removes_rows_that_ended_and_no_other
            an_open_transaction_of_php_grants_nothing
            a_row_that_cannot_be_read_is_corrupt_and_no_grant
            a_page_ends_with_a_row_that_cannot_be_read_and_the_next_begins_after_it
            who_took_a_row_over_looks_again_whether_php_has_overwritten_it
            what_php_overwrites_unseen_is_gone_at_the_next_renewal
            a_php_client_under_our_own_name_shortens_our_term
            the_trigger_refuses_to_overwrite_a_row_that_has_not_ended
        }
    };
    ($database:ty: $($name:ident)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            $crate::nene::cases::$name::<$database>().await;
        }
    )+};
}
