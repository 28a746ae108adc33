import { parseArgs } from 'node:util'
import { systemActor } from '../events/types.ts'
import { growWithWork } from '../process/start-up.ts'
import { type Command, misuse, unknownCommand } from './command.ts'
import { withRuntime } from './installation.ts'

export const usage = `Usage: daybook files <command>
  verify [--hashes] [--remove-orphans]   compares rows with storage, in both directions; exit code 1 for a difference
  migrate --to SERVICE                   moves all files to one storage service, while the server runs
  migrate --to-folders                   moves files of the flat layout to the folders of their tenant and user
`

/** Files and their content, from the command line. The actor is the platform: its caller has the database. */
export const run: Command = async ([name, ...args]) => {
  if (name === 'verify') return verify(args)
  if (name === 'migrate') return migrate(args)
  throw unknownCommand('daybook files', name, ['verify', 'migrate'])
}

async function verify(args: readonly string[]): Promise<number> {
  const options = { hashes: { type: 'boolean' }, 'remove-orphans': { type: 'boolean' } } as const
  const { hashes = false, 'remove-orphans': remove = false } = parseArgs({ args: [...args], options }).values
  let different = 0
  await withRuntime(async (runtime) => {
    const { removeOrphans, verifyFiles } = await import('../features/files/files/files.ts')
    growWithWork()
    const { rows, contents, differences } = await verifyFiles(runtime, { hashes })
    for (const { kind, storage, key } of differences) process.stdout.write(`${kind} ${storage} ${key}\n`)
    process.stdout.write(`${rows} files, ${contents} contents, ${differences.length} differences\n`)
    const orphans = differences.filter(({ kind }) => kind === 'orphan')
    different = differences.length
    if (!remove || orphans.length === 0) return
    await removeOrphans(runtime, orphans)
    process.stdout.write(`${orphans.length} orphans are removed by the workers\n`)
    different -= orphans.length
  })
  return different === 0 ? 0 : 1
}

async function migrate(args: readonly string[]): Promise<number> {
  const options = { to: { type: 'string' }, 'to-folders': { type: 'boolean' } } as const
  const { to, 'to-folders': folders = false } = parseArgs({ args: [...args], options }).values
  if ((to === undefined) === !folders) throw misuse('daybook files migrate', 'needs --to or --to-folders')
  let failures = 0
  await withRuntime(async (runtime) => {
    const { moveFiles, toFolders, toService } = await import('../features/files/files/files.ts')
    growWithWork()
    const { scanned, moved, skipped, failed, errors } = await moveFiles(
      runtime,
      systemActor,
      to === undefined ? toFolders : toService(runtime, to),
    )
    for (const { id, message } of errors) process.stdout.write(`failed ${id}: ${message}\n`)
    process.stdout.write(`${scanned} files, ${moved} moved, ${skipped} changed meanwhile, ${failed} failed\n`)
    failures = failed
  })
  return failures === 0 ? 0 : 1
}
