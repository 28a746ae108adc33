import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { type Config, ConfigError } from '../config/config.ts'
import { findExtensions } from '../extensions/folders.ts'
import { type Finding, ok, problem } from './finding.ts'

const check = 'extension files'

/** Whether processes find every extension of EXTENSIONS_DIR, and can read its file. Runs nothing of them. */
export async function checkExtensionFiles(config: Config): Promise<Finding[]> {
  try {
    const found = findExtensions(config)
    const files = found.map(({ file }) => file)
    const wrong = files.length === 0 ? [] : await unreadable(files)
    if (wrong.length > 0) return wrong.map(([file, reason]) => problem(check, `${file}: ${reason}`, remedy))
    return found.length === 0 ? [] : [ok(check, `${found.length} can be read in EXTENSIONS_DIR`)]
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    return [problem(check, error.message, 'correct EXTENSIONS_DIR, or what is in it (docs/extensions.md)')]
  }
}

const remedy = 'correct the file: no process that loads it starts before (docs/extensions.md)'

/**
 * In a process of its own, since Node warns of its reader of TypeScript, which is experimental, where it is used. It reads
 * JavaScript too.
 */
const reading = `
  const { readFileSync } = require('node:fs')
  const { stripTypeScriptTypes } = require('node:module')
  const wrong = process.argv.slice(1).flatMap((file) => {
    try {
      stripTypeScriptTypes(readFileSync(file, 'utf8'))
      return []
    } catch (error) {
      return [[file, String(error.message).split('\\n')[0]]]
    }
  })
  process.stdout.write(JSON.stringify(wrong))`

async function unreadable(files: readonly string[]): Promise<readonly (readonly [file: string, reason: string])[]> {
  const args = ['--disable-warning=ExperimentalWarning', '--eval', reading, '--', ...files]
  const { stdout } = await promisify(execFile)(process.execPath, args)
  return JSON.parse(stdout)
}
