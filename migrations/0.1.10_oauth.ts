import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'

export const version = '0.1.10'
export const name = 'oauth'
export const description =
  'Programs that users give access to: who they are, what they may do, and the codes that they get.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of statements) await sql(statement)
  return { success: true }
}

/* No collections: read by the sign-in of programs alone. No token is among them. */
const statements = [
  // Programs that have registered themselves. The id follows from the metadata.
  `create table if not exists "svc_OAuthClient" (
    id text primary key,
    metadata jsonb not null,
    "registeredBy" text not null,
    "createdAt" timestamptz not null default now(),
    "expiresAt" timestamptz not null
  )`,
  `create index if not exists "svc_OAuthClient_registeredBy_idx" on "svc_OAuthClient" ("registeredBy")`,
  `create index if not exists "svc_OAuthClient_expiresAt_idx" on "svc_OAuthClient" ("expiresAt")`,
  // What a user has allowed a program, beside the session that its tokens open: gone with it. `generation` is the number of
  // the one refresh token that may be used.
  `create table if not exists "svc_OAuthGrant" (
    id uuid primary key,
    "session_Id" uuid not null unique references "svc_Sessions" (id) on delete cascade,
    "clientId" text not null,
    "clientName" text not null,
    scopes text[] not null,
    resources text[] not null,
    generation integer not null default 0
  )`,
  // A code is kept after its use, so that a second one is noticed.
  `create table if not exists "svc_OAuthCode" (
    hash text primary key,
    "user_Id" uuid not null references "svc_User" (id) on delete cascade,
    consent jsonb not null,
    "session_Id" uuid references "svc_Sessions" (id) on delete set null,
    "usedAt" timestamptz,
    "expiresAt" timestamptz not null
  )`,
  `create index if not exists "svc_OAuthCode_expiresAt_idx" on "svc_OAuthCode" ("expiresAt")`,
  `create index if not exists "svc_OAuthCode_session_idx" on "svc_OAuthCode" ("session_Id") where "session_Id" is not null`,
  `create index if not exists "svc_OAuthCode_user_idx" on "svc_OAuthCode" ("user_Id")`,
]
