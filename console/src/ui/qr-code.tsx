import { encodeQR } from 'qr'

/** The light cells around a code, as its standard wants them. */
const border = 4

/** A text for the camera of another device. Its label says what the text is, to those who cannot see it. */
export function QrCode({ text, label }: { readonly text: string; readonly label: string }) {
  const rows = encodeQR(text, 'raw', { border, ecc: 'medium' })
  const dark = rows.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : [])))
  return (
    <svg
      role="img"
      aria-label={label}
      viewBox={`0 0 ${rows.length} ${rows.length}`}
      shapeRendering="crispEdges"
      // Dark on light in every theme: not every camera reads the reverse.
      style={{ inlineSize: 'min(100%, 13rem)', background: '#fff', color: '#000', forcedColorAdjust: 'none' }}
    >
      <path d={dark.join('')} fill="currentColor" />
    </svg>
  )
}
