import { holdTableSql } from '../../src/db/unlogged/holds.ts'

/** Tables that the processes share. None of them is a collection. */
export const processTables = [
  // Each commit of a request with a key writes one row; the first row also holds the answer.
  `create table "svc_IdempotencyKey" (
    caller text not null,
    key text not null,
    step smallint not null,
    fingerprint text not null,
    result text,
    status smallint,
    "contentType" text,
    body text,
    "expiresAt" timestamptz not null,
    primary key (caller, key, step)
  )`,
  `create index "svc_IdempotencyKey_expiresAt_idx" on "svc_IdempotencyKey" ("expiresAt")`,
  // Logged to the WAL, unlike other counters: a crash of the server must not give a guesser new tries.
  `create table "svc_CodeTry" (
    key text primary key,
    "left" integer not null,
    "endsAt" timestamptz not null
  ) with (fillfactor = 70)`,
  `create index "svc_CodeTry_endsAt_idx" on "svc_CodeTry" ("endsAt")`,
  // Unlogged: counts cost no WAL, and a crash of the server loses a few minutes of them. The fill factor leaves room for
  // updates in place. `added` is the part of the last statement.
  `create unlogged table "svc_RateLimit" (
    key text primary key,
    count bigint not null,
    added integer not null,
    "endsAt" timestamptz not null
  ) with (fillfactor = 70)`,
  `create index "svc_RateLimit_endsAt_idx" on "svc_RateLimit" ("endsAt")`,
  // A sign-in that waits for its next step, for five minutes.
  `create table "svc_Challenge" (
    identifier text primary key,
    "user_Id" uuid references "svc_User" (id) on delete cascade,
    data jsonb not null,
    attempts smallint not null default 0,
    "expiresAt" timestamptz not null
  )`,
  `create index "svc_Challenge_expiresAt_idx" on "svc_Challenge" ("expiresAt")`,
  `create index "svc_Challenge_user_idx" on "svc_Challenge" ("user_Id")`,
  // The development inbox, empty in production. It is apart from svc_EmailLog because these texts hold secrets that the
  // database otherwise never sees.
  `create unlogged table "svc_DevelopmentMail" (
    "emailLogId" uuid primary key references "svc_EmailLog" (id) on delete cascade,
    subject text not null,
    html text not null,
    text text not null,
    "keptAt" timestamptz not null default now()
  )`,
  // When a schedule is due next.
  `create table "svc_TaskSchedule" (
    id text primary key,
    cron text not null,
    "nextAt" timestamptz not null
  )`,
  // Which worker holds a lock of tasks, and until when.
  `create table "svc_TaskLock" (
    name text primary key,
    holder text not null,
    "expiresAt" timestamptz not null
  )`,
  // One row for each process that may answer sessions from memory.
  `create table "svc_Lease" (id uuid primary key, "seenAt" timestamptz not null)`,
  // The position that a read replica must have reached to show a caller its own writes. Unlogged: marks cost no WAL. A
  // crash of the server empties the table; without its row `floor` only the primary answers.
  `create unlogged table "svc_WriteMark" (
    caller text primary key,
    position bigint not null,
    "notedAt" timestamptz not null default clock_timestamp()
  ) with (fillfactor = 70)`,
  // The values that setup has seeded: it renews those that nobody has changed.
  'create table "svc_Seed" (key text primary key, value text not null)',
  holdTableSql,
  // The backups that were made, and the one that is under way.
  `create table svc_log.backup (
    id uuid primary key,
    place text not null,
    "startedAt" timestamptz not null default clock_timestamp(),
    "endedAt" timestamptz,
    bytes bigint,
    error text
  )`,
]
