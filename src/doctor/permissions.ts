import { readRules } from '../access/store.ts'
import { compileCatalog } from '../catalog/compile.ts'
import { readDefinitions } from '../catalog/store.ts'
import type { Config } from '../config/config.ts'
import type { Reader } from '../db/sql.ts'
import { type Review, reviewPermissions } from '../features/accounts/permissions/permissions.ts'
import { envOf } from '../query/env.ts'
import { type Finding, ok, warning } from './finding.ts'

/** The stored permissions against the collections as they are. */
export async function checkPermissions(db: Reader, config: Config, now: Date): Promise<Finding[]> {
  const catalog = compileCatalog(await readDefinitions(db), { multiTenant: config.tenancy.enabled })
  return judgePermissions(reviewPermissions(await readRules(db, catalog, 0), envOf(config, now)))
}

/**
 * A warning for each permission that waits for its collection, that does not fit it, or that shows a collection through a
 * relation for which the role has no such permission of its own.
 */
function judgePermissions(reviews: readonly Review[]): Finding[] {
  const found = reviews.flatMap((review) => [...waits(review), ...misfits(review), ...opens(review)])
  return found.length > 0 ? found : [ok('permissions', 'every stored permission fits its collection')]
}

function waits({ row, role, waits: isWaiting }: Review): Finding[] {
  if (!isWaiting) return []
  const says = `${ofRole(role)} may ${row.action} ${row.collection}, which does not exist: it grants nothing`
  return [warning('permissions', says, 'create the collection, or delete the permission')]
}

function misfits({ row, role, problems }: Review): Finding[] {
  return problems.map(({ field, message }) =>
    warning(
      'permissions',
      oneLine(`${ofRole(role)}, ${row.action} ${row.collection}: ${field}: ${message}; that part lets nothing through`),
      `correct the permission ${row.id}`,
    ),
  )
}

function opens({ row, role, opened }: Review): Finding[] {
  return opened.map(({ relation, collection, fields }) =>
    warning(
      'permissions',
      oneLine(`${ofRole(role)} reads ${fields.join(', ')} of ${collection} through ${row.collection}.${relation}`),
      `name only what may be seen in the fields of the permission ${row.id}, or give the role a permission to read ${collection} with conditions`,
    ),
  )
}

const ofRole = ({ name }: Review['role']): string => `role ${oneLine(name)}`

const oneLine = (text: string): string => text.replace(/[\p{C}\s]+/gu, ' ').slice(0, 300)
