import { constants } from 'node:fs'
import { access, mkdtemp, rmdir, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import type { Config } from '../config/config.ts'
import { type Finding, ok, problem, reasonOf } from './finding.ts'

/** The directory that uploads are written to, and the one that migrations are read from. */
export async function checkStorage({ storage, migrations }: Config): Promise<Finding[]> {
  const temp = storage.tempPath === undefined ? [] : [await checkWritable('STORAGE_TEMP_PATH', storage.tempPath)]
  return [...temp, await checkReadable('MIGRATIONS_DIR', migrations.dir)]
}

/** By making a directory in it, or where it will be made. */
async function checkWritable(what: string, path: string): Promise<Finding> {
  const directory = resolve(path)
  try {
    const place = await nearestExisting(directory)
    if (!(await stat(place)).isDirectory()) throw new Error(`${place} is no directory`)
    await rmdir(await mkdtemp(join(place, '.daybook-doctor-')))
    return ok('storage', `${what}: ${directory} can be written to`)
  } catch (error) {
    return problem(
      'storage',
      `${what}: ${directory} cannot be written to: ${reasonOf(error)}`,
      `make the directory, and let the user that runs Daybook write to it`,
    )
  }
}

async function nearestExisting(path: string): Promise<string> {
  try {
    await access(path)
    return path
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || dirname(path) === path) throw error
    return nearestExisting(dirname(path))
  }
}

async function checkReadable(what: string, path: string): Promise<Finding> {
  const directory = resolve(path)
  try {
    await access(directory, constants.R_OK | constants.X_OK)
    return ok('storage', `${what}: ${directory} can be read`)
  } catch (error) {
    return problem('storage', `${what}: ${reasonOf(error)}`, `make ${directory}, or correct ${what}`)
  }
}
