/**
 * Files of `?migration=` from before they made differences: they replaced whole collections, and so undid what others had
 * added meanwhile. They run as those of today.
 */
import type { DefinitionChange, SchemaVersions } from '../../../catalog/merge.ts'
import type { MigrationContext, MigrationScript } from '../../../events/direct-session.ts'

/** A script that replaces whole collections as one that makes the difference; any other one as it is. */
export function byDifference<Script extends MigrationScript>(script: Script, text: string): Script {
  if (!plain(text).endsWith(plain(replacing))) return script
  const change = async (): Promise<DefinitionChange> => ({
    before: await replacedBy(script.down!),
    after: await replacedBy(script.up),
  })
  return {
    ...script,
    up: async ({ db, schemaManager }: MigrationContext) => {
      await schemaManager.changeByDifference(db, await change())
      return { success: true }
    },
    down: async ({ db, schemaManager }: MigrationContext) => {
      const { before, after } = await change()
      await schemaManager.changeByDifference(db, { before: after, after: before })
      return { success: true }
    },
  }
}

/**
 * The schemas by which one direction replaces others. The code is known word for word: it asks for nothing but one change
 * of the definitions.
 */
async function replacedBy(run: MigrationScript['up']): Promise<SchemaVersions> {
  let schemas: SchemaVersions = {}
  const changeDefinitions = async (_db: unknown, edit: (catalog: object) => ReadonlyMap<string, object>) => {
    schemas = Object.fromEntries(edit({ collections: new Map() }))
    return []
  }
  await run({ schemaManager: { changeDefinitions } } as unknown as MigrationContext)
  return schemas
}

/** A text as every formatter leaves it. */
const plain = (text: string) => text.replaceAll(/[\s;,()]/g, '').replaceAll('"', "'")

/** The end of such a file, after its constants. */
const replacing = `export async function up(context: MigrationContext): Promise<MigrationResult> {
  return replaceBy(context, after)
}

/** Brings the definitions back, and of what has gone only the place. */
export async function down(context: MigrationContext): Promise<MigrationResult> {
  return replaceBy(context, before)
}

async function replaceBy({ db, schemaManager }: MigrationContext, schemas: Schemas): Promise<MigrationResult> {
  await schemaManager.changeDefinitions(db, ({ collections }) => {
    const next = new Map([...collections].map(([name, { definition }]) => [name, definition.schema]))
    for (const [name, schema] of Object.entries(schemas))
      if (schema === null) next.delete(name)
      else next.set(name, schema as never)
    return next
  })
  return { success: true }
}
`
