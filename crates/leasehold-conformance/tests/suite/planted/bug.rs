//! The bugs that can be planted, one at a time.

/// What is wrong with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    // Who holds
    ReleaseFreesWhoeverHolds,
    ReleaseTakesWhatBeginsAlike,
    RenewalExtendsWhoeverHolds,
    GroupEntersAgain,
    OtherModeIsConfirmed,
    GroupIsOverwritten,
    RetryGetsAFreshToken,
    ReadersJoinAWriter,
    WriterJoinsReaders,
    LimitIsIgnored,
    LimitIsOneTooMany,
    KeysIgnoreCase,
    KeysAreTrimmed,
    // All or none
    RefusalTakesTheFreeKeys,
    RefusalDrawsAToken,
    BrokenLeaseIsRenewed,
    BrokenLeaseIsConfirmed,
    BrokenLeaseIsReleasedInPart,
    // Time
    RenewalRevivesTheExpired,
    RenewalShortens,
    RetryShortens,
    NeverIsShortened,
    LiveAtExactlyItsTerm,
    TermIsRoundedDown,
    ExpiredReadersAreCounted,
    ExpiredWriterExcludesReaders,
    // Tokens
    CounterGoesWithTheRelease,
    CounterGoesWithTheLastRow,
    CounterGoesWithARestart,
    TokenIsTheClock,
    TokenIsAboveTheFirstKeyOnly,
    TokenIsDrawnBeforeTheKeyIsWon,
    RaiseLeavesTheCounter,
    RaiseLowers,
    CounterIsForgottenAtOnce,
    CounterAheadOfTheClockIsForgotten,
    // Reports
    RetryAfterIsTheSmallest,
    RetryAfterIsTheFirstKeys,
    RetryAfterIgnoresNever,
    LastRefusingKeyIsNamed,
    WrongHolderIsNamed,
    ExpiredReleaseSaysReleased,
    EvictionIsNotTold,
    EvictionDoesNotWake,
    EveryReleaseWakes,
    // Keep
    KeepFreesTheKey,
    KeepIsGrantedToTheExpired,
    ResentKeepStartsAnew,
    ReleaseEndsAKeep,
    // List and evict
    ListShowsTheExpired,
    ListHidesTheExpired,
    PagesSkipHoldersOfAKey,
    PrefixIsAPattern,
    EvictIgnoresTheId,
    EvictIgnoresTheToken,
    PurgeTakesTheLive,
    PurgeIgnoresItsLimit,
    // What it cannot do
    LimitIsWeakenedInSilence,
    NeverIsWeakenedInSilence,
    ManyKeysAreWeakenedInSilence,
    EntriesAreNotCounted,
    // Concurrency
    LooksAndThenTakes,
    LooksAndThenPurges,
    WritesKeyByKey,
}
