/** Programs that users give access to. These tables are no collections, and hold no token. */
export const oauth = [
  // Programs that registered themselves. The id is derived from the metadata.
  `create table "svc_OAuthClient" (
    id text primary key,
    metadata jsonb not null,
    "registeredBy" text not null,
    "createdAt" timestamptz not null default now(),
    "expiresAt" timestamptz not null
  )`,
  `create index "svc_OAuthClient_registeredBy_idx" on "svc_OAuthClient" ("registeredBy")`,
  `create index "svc_OAuthClient_expiresAt_idx" on "svc_OAuthClient" ("expiresAt")`,
  // The access that a user gave a program; it ends with the session that its tokens open. `generation` numbers the one
  // refresh token that is valid.
  `create table "svc_OAuthGrant" (
    id uuid primary key,
    "session_Id" uuid not null unique references "svc_Sessions" (id) on delete cascade,
    "clientId" text not null,
    "clientName" text not null,
    scopes text[] not null,
    resources text[] not null,
    generation integer not null default 0
  )`,
  // A code stays after its use, so that a second use is noticed.
  `create table "svc_OAuthCode" (
    hash text primary key,
    "user_Id" uuid not null references "svc_User" (id) on delete cascade,
    consent jsonb not null,
    "session_Id" uuid references "svc_Sessions" (id) on delete set null,
    "usedAt" timestamptz,
    "expiresAt" timestamptz not null
  )`,
  `create index "svc_OAuthCode_expiresAt_idx" on "svc_OAuthCode" ("expiresAt")`,
  `create index "svc_OAuthCode_session_idx" on "svc_OAuthCode" ("session_Id") where "session_Id" is not null`,
  `create index "svc_OAuthCode_user_idx" on "svc_OAuthCode" ("user_Id")`,
]
