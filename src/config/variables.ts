import type { Values } from './variable.ts'
import { auth, cookie, cors, oauth, oauthServer, passkey } from './variables/accounts.ts'
import { database, dataCache, migrations, systemCache, upstash } from './variables/database.ts'
import { assets, backup, files, storage } from './variables/files.ts'
import { access, overload, query, rateLimit, tenancy } from './variables/limits.ts'
import { admin, consoleGroup, log, mcp, observability, openapi, project, server } from './variables/server.ts'
import { mail, realtime, tasks, workflows } from './variables/work.ts'

/**
 * The one table of every variable.
 * Families of variables whose names are configured (`<SENDER>_SMTP_HOST`) are in families.ts.
 */
export const groups = {
  server,
  project,
  admin,
  console: consoleGroup,
  auth,
  cookie,
  passkey,
  oauth,
  oauthServer,
  cors,
  rateLimit,
  overload,
  access,
  tenancy,
  query,
  database,
  migrations,
  systemCache,
  dataCache,
  upstash,
  mail,
  storage,
  files,
  assets,
  realtime,
  tasks,
  workflows,
  backup,
  log,
  observability,
  mcp,
  openapi,
}

/** The values of the whole table, before families and rules have been applied. */
export type VariableValues = { readonly [G in keyof typeof groups]: Values<(typeof groups)[G]['variables']> }
