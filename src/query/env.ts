import type { Config } from '../config/config.ts'
import type { ResolveEnv } from './resolve.ts'

/** The part of a query's meaning that the configuration and the clock of a request decide. */
export const resolveEnv = ({ config, clock }: { readonly config: Config; clock(): Date }): ResolveEnv =>
  envOf(config, clock())

/** The same at a given time. */
export function envOf(config: Config, now: Date): ResolveEnv {
  return {
    now,
    multiTenant: {
      enabled: config.tenancy.enabled,
      strict: config.tenancy.strictIsolation,
      ignored: new Set(config.tenancy.ignoredTables),
    },
    countByDefault: config.query.countByDefault,
    maxLimit: config.query.maxLimit,
    postgis: config.database.postgis,
    vector: config.database.vector,
  }
}
