import { constants } from 'node:fs'
import { access, mkdtemp, rmdir, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import type { StorageService } from '../config/families.ts'
import type { Config } from '../config.ts'
import { type Finding, ok, problem, reasonOf, warning } from './finding.ts'

/** The directories that files are written to, and those that code is read from. */
export async function checkStorage({ storage, migrations }: Config): Promise<Finding[]> {
  const services = await Promise.all(Object.values(storage.services).map(checkService))
  const temp = storage.tempPath === undefined ? [] : [await checkWritable('STORAGE_TEMP_PATH', storage.tempPath)]
  return [...services, ...temp, await checkReadable('MIGRATIONS_DIR', migrations.dir)]
}

function checkService(service: StorageService): Promise<Finding> | Finding {
  if (service.driver === 'LOCAL') return checkWritable(`storage ${service.name}`, service.path)
  return warning('storage', `storage ${service.name}: S3 is not checked`, 'upload a file to see whether it works')
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
