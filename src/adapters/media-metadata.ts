/** The facts that an audio or video file contains about itself. */
export type MediaFacts = {
  readonly container?: string
  /** Seconds. */
  readonly duration?: number
  readonly bitrate?: number
  readonly streams: readonly MediaStream[]
}

type MediaStream = {
  readonly type: 'audio' | 'video' | 'other'
  readonly codec?: string
  readonly width?: number
  readonly height?: number
  readonly channels?: number
  readonly sampleRate?: number
}

/** A file that is read piece by piece; `end` is excluded. */
type RandomAccess = {
  readonly size: number
  readonly type: string
  read(start: number, end: number): Promise<Uint8Array>
}

/** A file that claims a million streams is not believed. */
const mostStreams = 32

/**
 * Reads what the containers say, nothing of what is in them: pictures and tags are passed over. Throws where the file is of
 * no kind that is known.
 */
export async function readMediaFacts(file: RandomAccess): Promise<MediaFacts> {
  const { parseBlob, TrackType } = await import('music-metadata')
  const { format } = await parseBlob(asBlob(file), { skipCovers: true, duration: false, skipPostHeaders: true })
  const { container, duration, bitrate, trackInfo = [] } = format
  const typeOf = (type: number | undefined) =>
    type === TrackType.video ? 'video' : type === TrackType.audio ? 'audio' : 'other'
  const tracks = trackInfo.slice(0, mostStreams).map(
    ({ type, codecName, audio, video }): MediaStream => ({
      type: typeOf(type),
      ...known({
        codec: codecName,
        width: video?.pixelWidth,
        height: video?.pixelHeight,
        channels: audio?.channels,
        sampleRate: audio?.samplingFrequency,
      }),
    }),
  )
  const { codec, numberOfChannels: channels, sampleRate } = format
  const only: MediaStream[] =
    codec === undefined && sampleRate === undefined
      ? []
      : [{ type: 'audio', ...known({ codec, channels, sampleRate }) }]
  return { ...known({ container, duration, bitrate }), streams: tracks.length > 0 ? tracks : only }
}

/** Of a blob the library uses its size, its type and slices that it turns into buffers. */
function asBlob({ size, type, read }: RandomAccess): Blob {
  const slice = (start = 0, end = size) => ({
    arrayBuffer: async () => {
      const bytes = await read(start, Math.min(end, size))
      return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength)
    },
  })
  return { size, type, slice } as unknown as Blob
}

type KnownMembers<T> = { readonly [Name in keyof T]?: NonNullable<T[Name]> }

/** Without what is unknown; numbers that are none are unknown, too. */
function known<T extends Readonly<Record<string, unknown>>>(facts: T): KnownMembers<T> {
  const isKnown = (value: unknown) =>
    typeof value === 'number' ? Number.isFinite(value) : typeof value === 'string' && value !== ''
  return Object.fromEntries(Object.entries(facts).filter(([, value]) => isKnown(value))) as KnownMembers<T>
}
