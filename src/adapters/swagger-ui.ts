import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'

const files = { 'swagger-ui-bundle.js': 'text/javascript', 'swagger-ui.css': 'text/css' } as const

/** A file of the package that shows an OpenAPI document in a browser. Nothing of the package runs here. */
type ViewerFile = keyof typeof files

export const viewerFiles = Object.entries(files) as readonly [ViewerFile, string][]

export function readViewerFile(name: ViewerFile): Promise<Buffer> {
  return readFile(createRequire(import.meta.url).resolve(`swagger-ui-dist/${name}`))
}
