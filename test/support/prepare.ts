import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { type Config, parseConfig } from '../../src/config/config.ts'
import { runSetup } from '../../src/setup/setup.ts'

/** The default administrator of every prepared database. */
export const administrator = { email: 'admin@example.com', password: 'correct horse battery staple' }

/** Where the files of test databases are, each in a folder of the database's name; removed with the databases. */
export const testFiles = join(tmpdir(), 'daybook-test-files')

/** The variables with which a process of ours runs on a test database; spread more over them. */
export function testEnv(url: string): Record<string, string> {
  return {
    NODE_ENV: 'test',
    DATABASE_URL: url,
    SECRET_KEY: 'a key for tests only, of no worth to anybody',
    ADMIN_EMAIL: administrator.email,
    ADMIN_PASSWORD: administrator.password,
    STORAGE_SERVICES_ENABLED: 'local',
    LOCAL_STORAGE_DRIVER: 'LOCAL',
    LOCAL_STORAGE_PATH: join(testFiles, new URL(url).pathname),
    ASSET_TEMP_DIR: join(testFiles, `${new URL(url).pathname}-images`),
  }
}

/** The configuration of such a process. */
export function testConfig(url: string, more: Readonly<Record<string, string>> = {}): Config {
  return parseConfig({ ...testEnv(url), ...more }, { requireDatabase: true })
}

/** Makes an empty database one that the program can run on, with the program's own setup step. */
export async function prepareDatabase(url: string): Promise<void> {
  await runSetup(testConfig(url), pino({ level: 'warn' }))
}
