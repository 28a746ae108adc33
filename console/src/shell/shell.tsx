import { Outlet, useRouter, useRouterState } from '@tanstack/react-router'
import { Menu as MenuIcon, Search } from 'lucide-react'
import { Suspense, useEffect, useRef, useState } from 'react'
import { lazyComponent } from '../app/lazy.ts'
import { IconButton, looks } from '../ui/button.tsx'
import { Drawer } from '../ui/dialog.tsx'
import { Loading } from '../ui/states.tsx'
import { useKeyboardPlace, useTitle } from './keyboard-place.ts'
import { OtherSession } from './other-session.tsx'
import { PreviewBanner } from './preview.tsx'
import styles from './shell.module.css'
import { ShortcutHelp, useShortcuts } from './shortcuts.tsx'
import { Sidebar } from './sidebar.tsx'

const Palette = lazyComponent(() => import('./palette.tsx'), 'Palette')
const PreviewDialog = lazyComponent(() => import('./preview-dialog.tsx'), 'PreviewDialog')

/** Navigation around the page that is shown. */
export function Shell() {
  const [isPaletteOpen, setPaletteOpen] = useState(false)
  const [isHelpOpen, setHelpOpen] = useState(false)
  const [isMenuOpen, setMenuOpen] = useState(false)
  const [isPreviewOpen, setPreviewOpen] = useState(false)
  const path = useRouterState({ select: ({ location }) => location.pathname })
  const router = useRouter()
  const main = useRef<HTMLElement>(null)
  const title = useTitle()
  useKeyboardPlace(main)
  useEffect(() => {
    // It is there before it is asked for, so that it has every letter that is typed after its shortcut. Where it cannot be had,
    // opening it says so.
    const timer = setTimeout(() => Palette.preload().catch(() => undefined), 300)
    return () => clearTimeout(timer)
  }, [])
  useEffect(() => router.subscribe('onResolved', () => setMenuOpen(false)), [router])
  useShortcuts({ openPalette: () => setPaletteOpen(true), openHelp: () => setHelpOpen(true) })
  const openPalette = () => {
    setMenuOpen(false)
    setPaletteOpen(true)
  }
  const sidebar = (
    <Sidebar onSearch={openPalette} onHelp={() => setHelpOpen(true)} onPreview={() => setPreviewOpen(true)} />
  )
  return (
    <div className={styles.shell}>
      <a href="#main" {...looks({ kind: 'primary' }, styles.skip)}>
        Go to the content
      </a>
      <aside className={styles.side} aria-label="Console">
        {sidebar}
      </aside>
      <header className={styles.topbar}>
        <IconButton label="Menu" onClick={() => setMenuOpen(true)}>
          <MenuIcon />
        </IconButton>
        <span className={styles.brandName}>Console</span>
        <IconButton label="Search" onClick={openPalette}>
          <Search />
        </IconButton>
      </header>
      <Drawer isOpen={isMenuOpen} onClose={() => setMenuOpen(false)} title="Menu" side="left">
        <div className={styles.drawerSide}>{sidebar}</div>
      </Drawer>
      <p className="visually-hidden" aria-live="polite">
        {title}
      </p>
      <main ref={main} id="main" className={styles.main} tabIndex={-1} key={path.split('/').slice(0, 3).join('/')}>
        <PreviewBanner />
        <OtherSession />
        <Suspense fallback={<Loading />}>
          <Outlet />
        </Suspense>
      </main>
      {isPaletteOpen && (
        <Suspense>
          <Palette isOpen onClose={() => setPaletteOpen(false)} onHelp={() => setHelpOpen(true)} />
        </Suspense>
      )}
      {isPreviewOpen && (
        <Suspense>
          <PreviewDialog isOpen onClose={() => setPreviewOpen(false)} />
        </Suspense>
      )}
      <ShortcutHelp isOpen={isHelpOpen} onClose={() => setHelpOpen(false)} />
    </div>
  )
}
