/** The clues about content when its first bytes have arrived. */
type Clues = {
  /** The type that the first bytes prove. */
  readonly proven: string | undefined
  /** The type that the sender declares. */
  readonly declared: string | undefined
  /** The type of its file extension. */
  readonly extended: string | undefined
}

/**
 * The type of content, and whether the content itself proves it. Pure. First bytes win; what is declared beside them counts
 * only where nothing contradicts it, and proves nothing.
 */
export function typeOf({ proven, declared, extended }: Clues): { readonly type: string; readonly typeProven: boolean } {
  const said = usual(declared)
  if (proven === undefined) return { type: said ?? usual(extended) ?? unknown, typeProven: false }
  const shown = usual(proven) ?? unknown
  // A picture that is sent as one of another format is still a picture.
  if (said === undefined || said === shown || (isMedia(said) && halfOf(said) === halfOf(shown)))
    return { type: shown, typeProven: true }
  // Office documents and many others are archives or XML inside.
  if (isContainer(shown) && !isMedia(said) && !isExecutable(said)) return { type: said, typeProven: false }
  return { type: shown, typeProven: false }
}

const unknown = 'application/octet-stream'

/** Without parameters, in lower case, by its registered name; undefined where nothing is said. */
function usual(type: string | undefined): string | undefined {
  const bare = type?.split(';', 1)[0]?.trim().toLowerCase() ?? ''
  if (!/^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$/.test(bare) || bare === unknown)
    return undefined
  return synonyms[bare] ?? bare
}

const synonyms: Readonly<Record<string, string>> = {
  'image/jpg': 'image/jpeg',
  'image/pjpeg': 'image/jpeg',
  'image/x-png': 'image/png',
  'image/vnd.microsoft.icon': 'image/x-icon',
  'audio/mp3': 'audio/mpeg',
  'audio/x-wav': 'audio/wav',
  'audio/wave': 'audio/wav',
  'audio/vnd.wave': 'audio/wav',
  'audio/x-m4a': 'audio/mp4',
  'audio/m4a': 'audio/mp4',
  'application/x-zip-compressed': 'application/zip',
  'application/x-gzip': 'application/gzip',
  'text/xml': 'application/xml',
}

const halfOf = (type: string): string => type.split('/', 1)[0]!
const isMedia = (type: string): boolean => /^(image|audio|video)\//.test(type)
const isContainer = (type: string): boolean => /^application\/(zip|xml|x-cfb|ogg|gzip)$/.test(type)
/** Types that a browser would run. */
const isExecutable = (type: string): boolean => /html|svg|javascript|ecmascript|xml$/.test(type)
